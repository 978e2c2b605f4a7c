"""`kvp doctor ENGINE URL`: whether a running engine follows directives, told by their effect, and what is missing.

The adapter's doctor asks the engine (`kvpolicy.examining`). Exit status 1 where something is missing or broken.
"""

from __future__ import annotations

import argparse
import json
import os

HELP = "Examine an inference engine that runs: version, hooks, whether a directive takes effect, what is missing."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`ENGINE URL [--channel ADDRESS] [--flood] [--model NAME] [--format text|json]`."""
    parser.add_argument("engine", metavar="ENGINE", help="vllm")
    parser.add_argument("url", metavar="URL", help="where it serves, such as http://127.0.0.1:8000")
    parser.add_argument(
        "--channel", metavar="ADDRESS", help="its control channel (default: $KVPOLICY_CHANNEL, or where kvp run put it)"
    )
    parser.add_argument("--model", metavar="NAME", help="which model to ask (default: the first it serves)")
    parser.add_argument(
        "--flood", action="store_true", help="fill its cache, if need be, to see an effect: what others cached goes"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Print the findings. Raises InputFault where there is no such engine."""
    from kvpolicy.examining import BROKEN, MISSING, Patient, find_doctor

    channel = args.channel or os.environ.get("KVPOLICY_CHANNEL")
    patient = Patient(args.url.rstrip("/"), channel, os.environ.get("KVPOLICY_CHANNEL_TOKEN"), args.flood, args.model)
    findings = find_doctor(args.engine)(patient)
    ill = any(finding.state in (MISSING, BROKEN) for finding in findings)
    if args.format == "json":
        print(json.dumps({"engine": args.engine, "findings": [f.as_json() for f in findings], "healthy": not ill}))
        return int(ill)
    width = max((len(finding.name) for finding in findings), default=0)
    for finding in findings:
        print(f"{finding.state:<8} {finding.name:<{width}}  {finding.message}")
        if finding.mend:
            print(f"{'':8} {'':{width}}  -> {finding.mend}")
    return int(ill)
