"""Routes of engines that no client reaches through the gateway, unless the configuration says otherwise.

The default of `config.closed`, asked by `paths`. The list is what vLLM's and SGLang's servers offer to those who
operate them.
"""

from __future__ import annotations

# Routes by which vLLM and SGLang are operated: one client would act on all.
CLOSED = (
    "/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache", "/flush_cache", "/clear_hicache_storage_backend",
    "/sleep", "/wake_up", "/is_sleeping", "/pause", "/resume", "/is_paused", "/collective_rpc", "/scale_elastic_ep",
    "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter", "/unload_lora_adapter",
    "/start_profile", "/stop_profile", "/server_info", "/get_server_info", "/set_internal_state", "/abort_request",
    "/abort_requests", "/init_weights_update_group", "/update_weights", "/update_weights_from_disk",
    "/update_weights_from_tensor", "/update_weights_from_distributed", "/get_weights_by_name",
    "/release_memory_occupation", "/resume_memory_occupation", "/pause_generation", "/continue_generation",
    "/open_session", "/close_session", "/configure_logging", "/start_expert_distribution_record",
    "/stop_expert_distribution_record", "/dump_expert_distribution_record",
)  # fmt: skip
