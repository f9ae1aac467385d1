// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/container_setup.h"

#include <array>

#include "agent/cat.h"
#include "agent/node/library_folder.h"

namespace gpuloom {
namespace {

constexpr char kSocketMount[] = "/var/run/gpuloom";
// In the PATH of nearly every image.
constexpr char kTraceMount[] = "/usr/local/bin/gpuloom-trace";
// The folders in which loaders of Debian and Red Hat images look, and where NVIDIA's own images expect the driver.
constexpr std::array<const char*, 3> kLibraryDirectories = {
    "/usr/lib/" GPULOOM_LIBRARY_FOLDER, "/usr/lib64", "/usr/local/nvidia/lib64"};
// Programs ask for a library with its number and without.
struct LibraryName {
  const char* name;
  std::string LibraryFiles::*file;
};
constexpr std::array<LibraryName, 4> kLibraryNames = {{
    {"libcuda.so.1", &LibraryFiles::cuda},
    {"libcuda.so", &LibraryFiles::cuda},
    {"libnvidia-ml.so.1", &LibraryFiles::nvml},
    {"libnvidia-ml.so", &LibraryFiles::nvml},
}};
// The loader of glibc, and no other, puts its own folder's name in the place of $LIB: so it finds the
// shim, which needs glibc, while musl's ignores a path that does not exist. All names that there are:
// Debian's, its descendants'; Red Hat's, SUSE's; Arch's, Nix' and who else has only 64-bit programs
// there. glibc complains on standard error about what it cannot load, so 32-bit programs are given
// something, too (but those of distributions that say "lib" for them, see docs/installation.md).
constexpr char kPreload[] = "/usr/local/nvidia/$LIB/libcuda.so.1";
constexpr std::array<const char*, 2> kFurtherPreloads = {
    "/usr/local/nvidia/lib/" GPULOOM_LIBRARY_FOLDER "/libcuda.so.1",
    "/usr/local/nvidia/lib/libcuda.so.1"};
#if defined(__x86_64__)
constexpr std::array<const char*, 2> kPreloads32 = {
    "/usr/local/nvidia/lib/i386-linux-gnu/libcuda.so.1", "/usr/local/nvidia/lib32/libcuda.so.1"};
#else
// A Grace's processors run no 32-bit programs.
constexpr std::array<const char*, 0> kPreloads32 = {};
#endif

}  // namespace

ContainerSetup MakeContainerSetup(const std::string& directory, const LibraryFiles& libraries,
                                  const ShimStore& shims, bool tells_page_faults) {
  ContainerSetup setup;
  if (tells_page_faults) setup.devices.push_back(kPageFaultDevice);
  // TakeBack relies on it being the first.
  setup.mounts.push_back({kSocketMount, directory});
  for (const char* library_directory : kLibraryDirectories) {
    for (const LibraryName& library : kLibraryNames) {
      setup.mounts.push_back(
          {Cat(library_directory, "/", library.name), shims.PathOf(libraries.*library.file)});
    }
  }
  for (const char* preload : kFurtherPreloads) {
    setup.mounts.push_back({preload, shims.PathOf(libraries.cuda)});
  }
  for (const char* preload : kPreloads32) {
    setup.mounts.push_back({preload, shims.PathOf(ShimStore::kEmptyLibrary32)});
  }
  setup.mounts.push_back({kTraceMount, shims.PathOf(libraries.trace)});
  setup.envs["LD_PRELOAD"] = kPreload;
  // Tells NVIDIA's container runtime, where it is the default, to leave this container alone.
  setup.envs["NVIDIA_VISIBLE_DEVICES"] = "void";
  return setup;
}

}  // namespace gpuloom
