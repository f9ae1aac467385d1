// SPDX-License-Identifier: Apache-2.0
// How a program begins: versions, cuInit, and the functions and tables it asks for by name.
#include <string.h>

#include <atomic>

#include "proto/cuda/cuda_all.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/proc_address.h"
#include "proto/libcuda/runtime_tables.h"
#include "shim/context/context.h"
#include "shim/module/library.h"
#include "shim/process/log.h"
#include "shim/session/session.h"
#include "shim/session/unsupported.h"

namespace gpuloom {
namespace {

// The session's version, so that cudart gets the same answer from the beginning. Without a session
// it is the version of the toolkit from which our table of functions was made, and cuInit returns
// the actual error.
int DriverVersion() {
  return session.Attach() == CUDA_SUCCESS ? session.device().driver_version : CUDA_VERSION;
}

// The version up to which `name` is to be found. Only names whose answer depends on it attach.
int VersionFor(const char* name) { return DependsOnDriver(name) ? DriverVersion() : CUDA_VERSION; }

CUresult CurrentContext(CUcontext* context) {
  *context = CurrentThread().current;
  return CUDA_SUCCESS;
}

CUresult PrimaryContextOf(CUdevice device, CUcontext* context) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  *context = PrimaryContext();
  return CUDA_SUCCESS;
}

CUresult ContextId(CUcontext context, uint64_t* id) {
  const Context* found = FindContext(context);
  if (found == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *id = IdOf(*found);
  return CUDA_SUCCESS;
}

int DeviceCount() { return session.state() == Session::State::kInitialized ? 1 : 0; }

void DeviceIdentity(int, RuntimeDevice* device) {
  const wire::DeviceSnapshot& ours = session.device();
  static_assert(sizeof(device->uuid) == sizeof(ours.uuid));
  memcpy(device->uuid, ours.uuid, sizeof(ours.uuid));
  device->pci_domain = ours.pci_domain;
  device->pci_bus = ours.pci_bus;
  device->pci_device = ours.pci_device;
}

bool HandshakeAllowed() {
  if (session.settings().runtime_handshake) return true;
  static std::atomic<bool> said{false};
  if (!said.exchange(true, std::memory_order_relaxed)) {
    Log(LogLevel::kWarn,
        "GPULOOM_RUNTIME_HANDSHAKE=off: programs built on NVIDIA's runtime cannot start");
  }
  return false;
}

// "cuda: export table 1734… function 4 is not supported", or that the table is unknown.
void LogTable(const char* line) {
  Log(LogLevel::kWarn, "%s", line);
  const char* what = strstr(line, "export table");
  const char* end = what != nullptr ? strstr(what, " is ") : nullptr;
  if (end != nullptr) ReportUnsupported(what, static_cast<size_t>(end - what));
}

// Libraries ask for functions of newer drivers and do without them, so this is information, not a
// warning.
void NoteUnknown(const char* name) {
  Log(LogLevel::kInfo, "%s is unknown here", name);
  if (!IsGraphicsInterop(name)) ReportUnsupported(name, strlen(name));
}

constexpr RuntimeHooks kHooks = {
    CurrentContext,
    PrimaryContextOf,
    ContextId,
    cuStreamGetId,
    cuStreamGetId_ptsz,
    LoadModule,
    cuModuleGetFunctionCount,
    cuModuleEnumerateFunctions,
    DriverVersion,
    DeviceCount,
    DeviceIdentity,
    HandshakeAllowed,
    LogTable,
};

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = session.Initialize();
  if (result == CUDA_SUCCESS) SendKeptReports();
  return result;
}

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = DriverVersion();
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char* name, void** function, int cuda_version, cuuint64_t flags) {
  const CUresult result =
      AnswerGetProcAddress(name, function, cuda_version, flags, nullptr, VersionFor(name));
  if (result == CUDA_ERROR_NOT_FOUND) NoteUnknown(name);
  return result;
}
CUresult cuGetProcAddress_v2(const char* name, void** function, int cuda_version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  // Unlike in cuGetProcAddress, a missing function is not an error, whether or not the caller asks
  // for the reason.
  CUdriverProcAddressQueryResult unasked;
  if (status == nullptr) status = &unasked;
  const CUresult result =
      AnswerGetProcAddress(name, function, cuda_version, flags, status, VersionFor(name));
  if (result == CUDA_SUCCESS && *status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) NoteUnknown(name);
  return result;
}

CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  return AnswerGetExportTable(kHooks, table, id);
}

}  // extern "C"
