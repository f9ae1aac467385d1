#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Collects what a machine with a GPU needs to run gpuloom, its conformance tests, test programs and benchmark, where
# nothing of ours is built and nothing can be installed: stripped, with every library but glibc.
#   tests/bench/pack.sh DIR [BUILD] [--demo]     BUILD: build/release or build/dev (default). With --demo agent and kubelet stand-in,
#                                                too, with the libraries that they alone need
# Then, there:
#   DIR/tests/check_gpu.py --out OUT      everything below but the long ones, in one run of limited time
#   DIR/tests/run.py --bench DIR/tests/gpuloom-bench --gpuloom DIR/bin/gpuloom      (--only sharing: who gets what)
#   DIR/tests/side_by_side/run.py --out OUT       programs and frameworks natively and through gpuloom
#   DIR/tests/gpuloom-valid-sequences --seconds 600     natively; through gpuloom behind DIR/bin/gpuloom run --slots 8 --
#   DIR/tests/tenant_memory.py --bench DIR/tests/gpuloom-bench --gpuloom DIR/bin/gpuloom
#   DIR/bin/gpuloom run -- DIR/tests/programs/vadd_static
#   DIR/bin/gpuloom run -- DIR/tests/gpuloom-library-probe      what a tenant loads by name is ours, and only ours
#   DIR/tests/demo.py --build DIR                 (with --demo)
#   DIR/tests/policy_change.py --build DIR        from the policy file to the shares (with --demo)
#   GPULOOM_PACK=DIR GPULOOM_TEST_DRIVER=libcuda.so.1 DIR/tests/gpuloom_sharing_test     (also: death, hostile)
#   GPULOOM_PACK=DIR GPULOOM_TEST_DRIVER=libcuda.so.1 DIR/tests/gpuloom-random-hostility --seconds 600
set -euo pipefail
demo=0
[[ ${*: -1} == --demo ]] && { demo=1; set -- "${@:1:$#-1}"; }
[[ $# -ge 1 && $# -le 2 && $1 != -* ]] || { grep '^#   ' "${BASH_SOURCE[0]}" >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

dir=$(realpath -m "$1") build=${2:-build/dev}
limit_mib=$((demo ? 80 : 60))

# A folder that was packed before is packed anew; anything else is left alone.
if [[ -e $dir ]]; then
  [[ -f $dir/.gpuloom-pack ]] || { echo "pack: $dir exists and is not a pack: remove it, or name another" >&2; exit 1; }
  rm -rf "${dir:?}"
fi
mkdir -p "$dir"/{bin,lib/softgpu,tests/programs}
touch "$dir/.gpuloom-pack"

take() {  # file folder: copied without its symbols
  [[ -e $1 ]] || { echo "pack: $1 is missing: build it first (cmake --build ${build} )" >&2; exit 1; }
  strip --strip-unneeded -o "$dir/$2/$(basename "$1")" "$1"
}
take_if_built() { if [[ -e $1 ]]; then take "$@"; else echo "pack: without $1, which is not built" >&2; fi; }

for program in gpuloom gpuloom-scheduler gpuloom-executor; do take "$build/bin/$program" bin; done
((demo)) && for program in gpuloom-agent fake-kubelet; do take_if_built "$build/bin/$program" bin; done
for library in libgpuloom.so libgpuloom-nvml.so gpuloom-trace; do take "$build/lib/$library" lib; done
take_if_built "$build/lib/softgpu/libcuda.so.1" lib/softgpu
for program in bench change-weights; do take "$build/tests/bench/gpuloom-$program" tests; done
for program in conformance library-probe random-hostility tenant valid-sequences wrong-calls; do take_if_built "$build/tests/gpuloom-$program" tests; done
for noun in sharing death hostile; do take_if_built "$build/tests/gpuloom_${noun}_test" tests; done
# A static CUDA runtime is 0.7 MiB in each program: a few of each kind carry it, the others use the machine's or the pack's.
static='vadd|streams|threads|globals|linked|children|ptds|reset|fault|spin|graph_capture|managed|pools|vmm'
for program in "$build"/tests/programs/*_{static,shared}; do
  [[ $program =~ _static$ && ! $(basename "$program") =~ ^($static)_static$ ]] && continue
  [[ -x $program ]] && take "$program" tests/programs
done
cp tests/check_gpu.py tests/bench/*.py tests/conformance/compare_wrong_calls.py "$dir/tests/"
((demo)) && cp deploy/demo.py "$dir/tests/"
cp -r tests/{golden,frameworks,side_by_side} "$dir/tests/"
rm -rf "$dir"/tests/{*_test,testing_*}.py "$dir"/tests/*/{CMakeLists.txt,__pycache__,*_test.py}

# What ldd finds, under the name it is asked for, except glibc's own parts, the driver's libcuda, and the toolkit's large
# libraries, which programs find in the toolkit's own folder.
glibc='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libcuda|libnvrtc|libnvJitLink|libcu(blas|blasLt|fft|rand|solver|sparse))\.so'
needed() {
  find "$dir" -type f ! -name '*.py' -exec ldd {} \; 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u |
    grep -vE "$glibc" || true
}
while read -r name path; do
  [[ -e $dir/lib/$name ]] || strip --strip-unneeded -o "$dir/lib/$name" "$(realpath "$path")"
done < <(needed)

# They are found without an environment variable, which the tenant's command would inherit.
for file in "$dir"/bin/* "$dir"/lib/softgpu/*; do
  if ldd "$file" | awk '$2 == "=>" {print $1}' | grep -qvE "$glibc" &&
      ! readelf -d "$file" | grep -qE 'R(UN)?PATH.*\$ORIGIN/\.\.'; then
    echo "pack: $file needs libraries and has no run path to lib/: see tests/bench/CMakeLists.txt" >&2
    exit 1
  fi
done

size_mib=$(($(du -s --apparent-size --block-size=1024 "$dir" | cut -f1) / 1024))
echo "pack: $dir: $size_mib MiB"
((size_mib < limit_mib)) || { echo "pack: that is more than $limit_mib MiB" >&2; exit 1; }
