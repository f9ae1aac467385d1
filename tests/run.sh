#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs all tests. The closing line counts everything.
#   tests/run.sh           everything: dev, AddressSanitizer with the fuzzers, clang-tidy, ThreadSanitizer
#   tests/run.sh --quick   the dev build and its tests only
#   tests/run.sh --long    everything, then other drivers and GPUs, as softgpu plays them, the agent's processes under
#                          AddressSanitizer, what is shipped (the release build with its short tests), all programs for aarch64
#                          with what qemu-user runs of their tests, an hour of random hostile tenants under AddressSanitizer, an
#                          hour of valid sequences, an upgrade from the last release and back, and half an hour of a node under use
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

quick=0 long=0
case "${1:-}" in
  "") ;;
  --quick) quick=1 ;;
  --long) long=1 ;;
  *) grep '^#   ' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac

deploy/install-deps.sh || exit 1

passed=0 failed=0 skipped=0 unsteady=0
jobs=$(nproc)

say() { printf '== %4ds  %s\n' "$SECONDS" "$*"; }

compile() {  # preset
  mkdir -p "build/$1"
  { cmake --preset "$1" && cmake --build --preset "$1" -j "$jobs"; } >"build/$1/build.log" 2>&1
}

tidy() { tests/tidy.py build/asan >build/asan/tidy.log 2>&1; }

# Begins something that goes on beside what follows, and behind it: tests mostly wait, and the processors are idle then.
declare -A began=()
begin() {  # name command…
  say "$1: begins beside the next"
  set -m  # a process group of its own, so that all of it ends with this script
  (renice -n 19 "$BASHPID" >/dev/null; "${@:2}") &
  set +m
  began[$1]=$!
}
ended_well() {  # name
  local pid=${began[$1]}
  unset "began[$1]"
  wait "$pid"
}
end_begun() {
  local pid
  for pid in "${began[@]}"; do kill -- "-$pid" 2>/dev/null; done
}
trap end_begun EXIT
trap 'exit 130' INT TERM

# Says what is wrong with a build that broke, which counts as one failure.
count_broken_build() {  # preset
  grep -E -A12 '(error|Error|FAILED)[: ]' "build/$1/build.log" | head -80
  say "$1: the build failed, see build/$1/build.log"
  ((++failed))
}

# Runs a preset's tests and adds up their cases. Failed ones run once more where count_results.py says so.
run_tests() {  # preset [ctest argument…]
  local preset=$1 counts again
  shift
  say "$preset: tests"
  rm -rf "build/$preset/results" "build/$preset"/junit{,_again}.xml
  # Twice as many as processors: the longest mostly wait.
  ctest --test-dir "build/$preset" --output-on-failure --output-junit junit.xml -j $((2 * jobs)) "$@" |
    grep -v -E '^ +Start +[0-9]+:' | tee "build/$preset/ctest.log"
  again=$(tests/count_results.py --again "build/$preset")
  if [[ -n $again ]]; then
    say "$preset: again: $again"
    ctest --test-dir "build/$preset" --output-on-failure --output-junit junit_again.xml -R "$again" "$@"
  fi
  if ! counts=$(tests/count_results.py "build/$preset"); then
    say "$preset: no results"
    ((++failed))
    return
  fi
  local p f s u
  read -r p f s u <<<"$counts"
  ((passed += p, failed += f, skipped += s, unsteady += u))
  tail -n +2 <<<"$counts"
  say "$preset: $p passed, $f failed, $s skipped"
}

# Runs each fuzzer for its part of a minute, from the checked-in corpus.
run_fuzzers() {
  local fuzzers=(build/asan/fuzz/*) corpus fuzzer name seconds
  [[ -x ${fuzzers[0]} ]] || { say "fuzz: no fuzzers were built"; ((++failed)); return; }
  seconds=$((60 / ${#fuzzers[@]}))
  for fuzzer in "${fuzzers[@]}"; do
    name=$(basename "$fuzzer")
    mkdir -p "build/asan/corpus/$name" build/asan/artifacts
    corpus=("build/asan/corpus/$name")
    [[ -d tests/fuzz/$name ]] && corpus+=("tests/fuzz/$name")
    say "fuzz: $name for $seconds s"
    if "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0 \
        -artifact_prefix="build/asan/artifacts/$name-" "${corpus[@]}" \
        >"build/asan/$name.log" 2>&1; then
      ((++passed))
    else
      tail -40 "build/asan/$name.log"
      say "fuzz: $name found something: build/asan/artifacts/$name-*"
      ((++failed))
    fi
  done
}

# clang-tidy, over the sources that a clang build has compiled.
count_tidy() {
  local found=0
  ended_well tidy || found=1
  cat build/asan/tidy.log
  if ((found)); then ((++failed)); else ((++passed)); fi
}

# New seeds each time; what goes wrong names its seed.
run_random() {  # name how-long command…
  local name=$1 log=build/long/$1.log
  say "random: $name for $2, see $log"
  shift 2
  mkdir -p build/long
  if "$@" >"$log" 2>&1; then
    tail -20 "$log"
    ((++passed))
  else
    tail -80 "$log"
    say "random: $name failed"
    ((++failed))
  fi
}

export ASAN_OPTIONS=detect_stack_use_after_return=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1
say "dev: build"
if compile dev; then
  ((quick)) || begin asan compile asan
  run_tests dev
else
  count_broken_build dev
  ((quick)) || begin asan compile asan
fi
if ((!quick)); then
  say "asan: build"
  if ended_well asan; then
    begin tidy tidy
    begin tsan compile tsan
    # Another driver plays the same code, and scripts run none of it; once is enough.
    run_tests asan -LE 'machines|scripts'
    run_fuzzers
    ((long)) || run_random hostility "two minutes" build/asan/tests/gpuloom-random-hostility --seconds 120 --log build/long/executors.log
    say "tidy"
    count_tidy
  else
    count_broken_build asan
    begin tsan compile tsan
  fi
  say "tsan: build"
  # ThreadSanitizer does not look across processes (its preset leaves tests/ out), and has its own map of the address
  # space, where nothing can be mapped at the addresses that sessions get.
  # Some tests start threads in a child, after others have had threads here, which it would refuse.
  if ended_well tsan; then
    TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 suppressions=$PWD/tests/tsan.supp" run_tests tsan -LE device-addresses
  else
    count_broken_build tsan
  fi
fi
if ((long)); then
  # Every driver and compute capability that softgpu plays.
  run_tests dev -C Machines -L machines
  # The agent's processes, under AddressSanitizer too.
  say "asan: agent"
  if cmake --build build/asan --target gpuloom_long_tests -j "$jobs" >>build/asan/build.log 2>&1; then
    run_tests asan -C Long -R '^agent_'
  else
    count_broken_build asan
  fi
  # Without assertions, and optimised as nothing above is. What needs several processes waits for them as in the dev build.
  say "release: build"
  if compile release; then run_tests release -LE processes; else count_broken_build release; fi
  # Another processor, as qemu-user plays it.
  if command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null && deploy/arm64_libraries.sh --check 2>/dev/null; then
    say "arm64: build"
    if compile arm64; then run_tests arm64; else count_broken_build arm64; fi
  else
    say "arm64: skipped: no cross compiler, qemu-user or arm64 libraries: deploy/install-deps.sh --arm64"
    ((++skipped))
  fi
  run_random hostility "an hour" build/asan/tests/gpuloom-random-hostility --seconds 3600 --log build/long/executors.log
  run_random sequences "an hour" env GPULOOM_SOFTGPU_MEMORY=1GiB GPULOOM_SOFTGPU_QUIET=1 \
    build/dev/bin/gpuloom run --slots 8 --state-dir build/long/sequences --domain sequences --softgpu -- \
    build/dev/tests/gpuloom-valid-sequences --seconds 3600 --processes 3
  run_random upgrade "there and back" tests/versions/upgrade.py --build build/dev
  run_random soak "half an hour" tests/soak/soak.py --build build/dev --seconds 1800 --out build/long/soak.md
fi
say "done"
((unsteady == 0)) || echo "$unsteady unsteady: failed, and passed when they ran again"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0 && passed > 0))
