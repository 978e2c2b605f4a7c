"""The Lua scripts that run inside Redis: each is one atomic step on keys of one slot, all of them declared.

Every age is measured with the server's own time. Whatever a script writes it gives an end. Scripts that may be sent
again after a connection broke (`append`, `restore`, `hello`, `document`) do the same twice as once.
"""

from __future__ import annotations

from hashlib import sha1

_NOW = "local t = redis.call('TIME')\nlocal now = t[1] * 1000 + math.floor(t[2] / 1000)\n"

SOURCES: dict[str, str] = {
    # KEYS records seen; ARGV most records, their age ms, ttl ms, key window ms, most keys, epoch, {key, body}…
    # Entries are numbered `EPOCH.N` without a hole, so that a reader sees what it has missed.
    "append": """
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local epoch, n = ARGV[6], 0
if last[1] then
  local e, number = string.match(last[1][2][2], '^(.+)%.(%d+)$')
  if e then epoch, n = e, tonumber(number) end
end
local added = {}
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[4])
for i = 7, #ARGV, 2 do
  if redis.call('ZADD', KEYS[2], 'NX', now, ARGV[i]) == 1 then
    n = n + 1
    redis.call('XADD', KEYS[1], '*', 'n', epoch .. '.' .. string.format('%d', n), 'b', ARGV[i + 1])
    added[#added + 1] = 1
  else
    added[#added + 1] = 0
  end
end
redis.call('XTRIM', KEYS[1], 'MAXLEN', ARGV[1])
redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%d', now - ARGV[2]))
local keys = redis.call('ZCARD', KEYS[2])
if keys > tonumber(ARGV[5]) then redis.call('ZREMRANGEBYRANK', KEYS[2], 0, keys - ARGV[5] - 1) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return added
""",
    # KEYS records; ARGV last id read ('0-0': none), count → seconds, microseconds, last id kept, {id, number, body}…
    "read": """
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local out = {t[1], t[2], last[1] and last[1][1] or ''}
if last[1] and last[1][1] ~= ARGV[1] then
  for _, row in ipairs(redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])) do
    out[#out + 1] = row[1]
    out[#out + 1] = row[2][2]
    out[#out + 1] = row[2][4]
  end
end
return out
""",
    # KEYS serials live key; ARGV replica, its ttl ms, ttl ms of the others, layout, a key for salts or ''
    "hello": """
local layout = redis.call('HGET', KEYS[1], '#layout')
if layout and layout ~= ARGV[4] then return {'layout', layout} end
redis.call('HSET', KEYS[1], '#layout', ARGV[4])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
local key = ''
if ARGV[5] ~= '' then
  redis.call('SET', KEYS[3], ARGV[5], 'NX', 'PX', ARGV[3])
  redis.call('PEXPIRE', KEYS[3], ARGV[3])
  key = redis.call('GET', KEYS[3])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'well', redis.call('ZCARD', KEYS[2]), key}
""",
    "bye": "redis.call('ZREM', KEYS[2], ARGV[1])\nreturn 1\n",
    # KEYS serials versions; ARGV name, expected serial or '', body, how many are kept, ttl ms
    "publish": """
local serial = tonumber(redis.call('HGET', KEYS[2], 'serial') or '0')
if ARGV[2] ~= '' and tonumber(ARGV[2]) ~= serial then return {'expected', serial} end
local number = redis.call('HINCRBY', KEYS[2], 'next', 1)
local current = redis.call('HGET', KEYS[2], 'current') or '0'
redis.call('HSET', KEYS[2], 'serial', serial + 1, 'prior', current, 'current', number,
  'v' .. number, string.format('%d', now) .. ' ' .. ARGV[3])
for _, field in ipairs(redis.call('HKEYS', KEYS[2])) do
  local n = tonumber(string.match(field, '^v(%d+)$') or '')
  if n and n <= number - ARGV[4] and n ~= tonumber(current) then redis.call('HDEL', KEYS[2], field) end
end
redis.call('HSET', KEYS[1], ARGV[1], serial + 1)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return {'well', serial + 1, number, now}
""",
    # KEYS serials versions; ARGV name, number or '', ttl ms
    "roll_back": """
local serial = tonumber(redis.call('HGET', KEYS[2], 'serial') or '0')
if serial == 0 then return {'never'} end
local number = ARGV[2] ~= '' and ARGV[2] or redis.call('HGET', KEYS[2], 'prior')
local body = redis.call('HGET', KEYS[2], 'v' .. number)
if not body then return {'gone', number} end
redis.call('HSET', KEYS[2], 'serial', serial + 1, 'prior', redis.call('HGET', KEYS[2], 'current'), 'current', number)
redis.call('HSET', KEYS[1], ARGV[1], serial + 1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'well', serial + 1, tonumber(number), body}
""",
    # KEYS serials versions; ARGV ttl ms
    "current": """
redis.call('PEXPIRE', KEYS[2], ARGV[1])
local row = redis.call('HMGET', KEYS[2], 'serial', 'current', 'prior')
if not row[1] or not row[2] then return {} end
local prior = row[3] or '0'
return {row[1], row[2], redis.call('HGET', KEYS[2], 'v' .. row[2]) or '',
  row[1], prior, redis.call('HGET', KEYS[2], 'v' .. prior) or ''}
""",
    # KEYS serials versions; ARGV name, serial, number, the one before, ttl ms, {number, body with its time}…
    # A replica knows more than the server: it was restarted empty, or another took over before it had heard.
    "restore": """
local serial = tonumber(redis.call('HGET', KEYS[2], 'serial') or '0')
if serial < tonumber(ARGV[2]) then
  serial = tonumber(ARGV[2])
  local after = tonumber(redis.call('HGET', KEYS[2], 'next') or '0')
  redis.call('HSET', KEYS[2], 'serial', ARGV[2], 'current', ARGV[3], 'prior', ARGV[4],
    'next', string.format('%d', math.max(after, tonumber(ARGV[3]), tonumber(ARGV[4]))))
  for i = 6, #ARGV, 2 do redis.call('HSET', KEYS[2], 'v' .. ARGV[i], ARGV[i + 1]) end
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%d', serial))
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return serial
""",
    # KEYS documents; ARGV source, body, ttl ms, most sources
    # Each has an end of its own, which whoever reads looks at; the key lasts as long as the longest of them.
    "document": """
redis.call('HSET', KEYS[1], ARGV[1], string.format('%d %d', now, now + ARGV[3]) .. ' ' .. ARGV[2])
local rows = redis.call('HLEN', KEYS[1])
while rows > tonumber(ARGV[4]) do
  local oldest, since = nil, nil
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local at = tonumber(string.match(all[i + 1], '^%d+') or '0')
    if all[i] ~= ARGV[1] and (not since or at < since) then oldest, since = all[i], at end
  end
  redis.call('HDEL', KEYS[1], oldest)
  rows = rows - 1
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return now
""",
    # KEYS pin; ARGV worker, ttl ms, move
    "pin": """
local held = redis.call('GET', KEYS[1])
if held and ARGV[3] == '0' then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {held, 0}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {ARGV[1], 1}
""",
    # KEYS key; ARGV ttl ms. A value is 'r' while it runs, 'd' and the result when it is done
    "begin": """
local held = redis.call('GET', KEYS[1])
if held then return {0, held} end
redis.call('SET', KEYS[1], 'r', 'PX', ARGV[1])
return {1, ''}
""",
    "abandon": "if redis.call('GET', KEYS[1]) == 'r' then redis.call('DEL', KEYS[1]) end\nreturn 1\n",
    # KEYS count; ARGV amount, limit, window ms → granted, used in thousandths
    "spend": """
local window = tonumber(ARGV[3])
local number = math.floor(now / window)
local row = redis.call('HMGET', KEYS[1], 'w', 'n', 'b')
local w, n, b = tonumber(row[1] or '-9'), tonumber(row[2] or '0'), tonumber(row[3] or '0')
if w == number - 1 then b, n = n, 0 elseif w ~= number then b, n = 0, 0 end
local used = b * (1 - (now - number * window) / window) + n
local granted = 0
if used + ARGV[1] <= tonumber(ARGV[2]) then
  granted, n, used = 1, n + ARGV[1], used + ARGV[1]
  redis.call('HSET', KEYS[1], 'w', string.format('%d', number), 'n', string.format('%.17g', n), 'b',
    string.format('%.17g', b))
  redis.call('PEXPIRE', KEYS[1], string.format('%d', 2 * window))
end
return {granted, string.format('%.17g', used)}
""",
    # KEYS places; ARGV holder, limit, ttl ms
    "enter": """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local inside = redis.call('ZCARD', KEYS[1])
local mine = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not mine and inside >= tonumber(ARGV[2]) then return {0, inside} end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
local longest = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
redis.call('PEXPIRE', KEYS[1], string.format('%d', longest[2] - now))
return {1, mine and inside or inside + 1}
""",
}
SCRIPTS: dict[str, str] = {name: _NOW + source for name, source in SOURCES.items()}
DIGESTS: dict[str, str] = {  # Redis names scripts by SHA-1
    name: sha1(text.encode(), usedforsecurity=False).hexdigest() for name, text in SCRIPTS.items()
}
