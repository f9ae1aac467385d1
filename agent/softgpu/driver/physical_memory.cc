// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <utility>

#include "agent/softgpu/driver/state.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

// No holder of the descriptor can shrink the memory while a kernel uses it.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Living handles and how often each has been given out. Keyed by address, so a wrong handle is
// looked up and never dereferenced.
struct Handles {
  struct Entry {
    std::shared_ptr<Physical> physical;
    unsigned count = 0;
  };
  Mutex mutex;
  std::unordered_map<const Physical*, Entry> entries GPULOOM_GUARDED_BY(mutex);
};

Handles& AllHandles() {
  static auto* handles = new Handles;  // never destroyed: calls may come while the process exits
  return *handles;
}

bool IsHost(CUmemLocationType type) {
  return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

// The descriptor's name carries the location to the importer: "gpuloom-softgpu-0", or "-host".
std::string NameOf(const Device* device) {
  return "gpuloom-softgpu-" + (device == nullptr ? "host" : std::to_string(device->ordinal));
}

// The device that the name of an imported descriptor tells; device 0 where /proc cannot be read or
// the number is no device here.
Device* DeviceOf(int fd) {
  char link[128];
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(path.c_str(), link, sizeof(link) - 1);
  if (length > 0) {
    link[length] = '\0';
    if (std::string(link).find("gpuloom-softgpu-host") != std::string::npos) return nullptr;
    int ordinal = 0;
    if (std::sscanf(link, "/memfd:gpuloom-softgpu-%d", &ordinal) == 1 &&
        FindDevice(ordinal) != nullptr) {
      return FindDevice(ordinal);
    }
  }
  return FindDevice(0);
}

// Every failure is reported as a lack of memory; if descriptors have run out, a person can help,
// and the message says how.
CUresult FromErrno(const char* what) {
  if (errno == EMFILE || errno == ENFILE) {
    PrintLine(std::string(what) +
              ": no file descriptor left; raise the limit of open files (ulimit -n)");
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

Physical::~Physical() {
  if (fd >= 0) close(fd);
  if (charged) device->GiveBack(size_bytes);
}

CUresult MakePhysical(uint64_t size_bytes, const CUmemAllocationProp& properties,
                      std::shared_ptr<Physical>& physical) {
  if (size_bytes == 0 || size_bytes % kGranularityBytes != 0) return CUDA_ERROR_INVALID_VALUE;
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  // CUDA's error where a process may not use fabric handles, which are not offered here.
  if ((properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0) {
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if ((properties.requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto made = std::make_shared<Physical>();
  made->size_bytes = size_bytes;
  made->properties = properties;
  if (properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    made->device = FindDevice(properties.location.id);
    if (made->device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    // Charged before the pages exist; the destructor gives it back on every failure below.
    if (!made->device->Take(size_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    made->charged = true;
  } else if (!IsHost(properties.location.type)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  made->fd = memfd_create(NameOf(made->device).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made->fd < 0) return FromErrno("cuMemCreate");
  if (ftruncate(made->fd, static_cast<off_t>(size_bytes)) != 0) return FromErrno("cuMemCreate");
  // Sealed after the size is set: the seals would forbid setting it.
  if (fcntl(made->fd, F_ADD_SEALS, kSeals) != 0) return FromErrno("cuMemCreate");
  physical = std::move(made);
  return CUDA_SUCCESS;
}

CUresult ImportPhysical(int fd, std::shared_ptr<Physical>& physical) {
  struct stat status {};
  // The seals show that the memory is ours, or at least that it cannot shrink under a kernel.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return CUDA_ERROR_UNKNOWN;  // as the real driver
  if (fstat(fd, &status) != 0 || status.st_size <= 0) return CUDA_ERROR_UNKNOWN;
  if (static_cast<uint64_t>(status.st_size) % kGranularityBytes != 0) return CUDA_ERROR_UNKNOWN;
  auto made = std::make_shared<Physical>();
  // A descriptor of our own: the caller closes its one whenever it likes.
  made->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (made->fd < 0) return FromErrno("cuMemImportFromShareableHandle");
  made->size_bytes = static_cast<uint64_t>(status.st_size);
  // Not charged: the process that created it counts it.
  made->device = DeviceOf(fd);
  made->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  made->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  made->properties.location.type =
      made->device == nullptr ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  made->properties.location.id = made->device == nullptr ? 0 : made->device->ordinal;
  physical = std::move(made);
  return CUDA_SUCCESS;
}

CUresult ExportPhysical(const Physical& physical, int& fd) {
  // Exactly this type: memory that was made without it cannot be exported later, as in CUDA.
  if (physical.properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  fd = fcntl(physical.fd, F_DUPFD_CLOEXEC, 0);
  return fd < 0 ? FromErrno("cuMemExportToShareableHandle") : CUDA_SUCCESS;
}

CUmemGenericAllocationHandle AddHandle(const std::shared_ptr<Physical>& physical) {
  Handles& handles = AllHandles();
  const MutexLock lock(handles.mutex);
  Handles::Entry& entry = handles.entries[physical.get()];
  entry.physical = physical;
  ++entry.count;
  return reinterpret_cast<CUmemGenericAllocationHandle>(physical.get());
}

std::shared_ptr<Physical> FindHandle(CUmemGenericAllocationHandle handle) {
  Handles& handles = AllHandles();
  const MutexLock lock(handles.mutex);
  const auto found = handles.entries.find(reinterpret_cast<const Physical*>(handle));
  return found == handles.entries.end() ? nullptr : found->second.physical;
}

bool ReleaseHandle(CUmemGenericAllocationHandle handle) {
  Handles& handles = AllHandles();
  std::shared_ptr<Physical> last;  // destroyed after the lock is gone
  const MutexLock lock(handles.mutex);
  const auto found = handles.entries.find(reinterpret_cast<const Physical*>(handle));
  if (found == handles.entries.end()) return false;
  if (--found->second.count == 0) {
    last = std::move(found->second.physical);
    handles.entries.erase(found);
  }
  return true;
}

}  // namespace gpuloom::softgpu
