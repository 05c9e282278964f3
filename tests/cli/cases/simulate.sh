# shellcheck shell=bash disable=SC2034,SC2154
# plan --simulate: a forecast, and faults by seed.

case_simulate_forecasts()
{
    campaign c.json
    kv plan c.json --simulate --ranks 1024
    expect_rc 0
    expect_no_err
    expect_out 'simulated on 1024 ranks: makespan'
    expect_out 'efficiency'
    expect_out 'messages: [0-9]+, [0-9]+ bytes; rank 0'
    kv plan c.json --simulate --ranks 4 --cores 2 --format json
    expect_rc 0
    grep -q '"simulation":{"cores":2,' "$OUT" || fail "the JSON plan holds no simulation"
    grep -q '"makespan_us":[1-9]' "$OUT" || fail "no makespan"
    expect_untouched
}

case_simulate_a_seed_twice()
{
    campaign c.json
    kv plan c.json --simulate --sim-seed 18446744073709551615
    expect_rc 0
    expect_no_err
    expect_out '^seed 18446744073709551615: '
    expect_out 'digest [0-9a-f]{16}'
    cp "$OUT" "$KV_CASE/first"
    kv plan c.json --simulate --sim-seed 18446744073709551615
    expect_same "$OUT" "$KV_CASE/first"
}

case_simulate_many_seeds()
{
    campaign c.json
    kv plan c.json --simulate --sim-seeds 200 --sim-seed 7
    expect_rc 0
    expect_no_err
    expect_out '200 seeds from 7: '
    kv plan c.json --simulate --sim-seeds 20 --format json
    expect_rc 0
    grep -q '"stories":{' "$OUT" || fail "the JSON plan holds no stories"
    expect_untouched
}

case_simulate_usage()
{
    campaign c.json
    refused 2 "--simulate" -- plan c.json --sim-seeds 5
    refused 2 "--simulate" -- plan c.json --cores 5
    refused 2 "sim-seed" -- plan c.json --simulate --sim-seed 18446744073709551616
    refused 2 "65536" -- plan c.json --simulate --ranks 100000
}
