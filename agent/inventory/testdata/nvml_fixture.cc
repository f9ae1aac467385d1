// SPDX-License-Identifier: Apache-2.0
// A libnvidia-ml.so.1 for tests: two GPUs, or what FIXTURE_* asks for.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifdef FIXTURE_FAULTS
namespace {

// The file that GPULOOM_NVML_FIXTURE names says what has happened: "xid INDEX NUMBER", told once to an event set that
// was there before, and "lost INDEX", as long as it says so. The GPUs are the first two whose UUIDs are asked for.
int devices[2];
char uuids[2][64];
bool is_registered[2];  // in the event set; one that is lost lets the set tell of nothing else
unsigned told = 0;      // xids

// Calls back for each line.
template <typename Line>
void ForEachLine(Line on_line) {
  std::FILE* const file = std::fopen(std::getenv("GPULOOM_NVML_FIXTURE"), "r");
  if (file == nullptr) return;
  for (char line[64]; std::fgets(line, sizeof(line), file) != nullptr;) {
    char what[16] = {};
    int index = 0, number = 0;
    if (std::sscanf(line, "%15s %d %d", what, &index, &number) >= 2) {
      on_line(std::strcmp(what, "xid") == 0, &devices[index], number);
    }
  }
  std::fclose(file);
}

bool IsLost(const void* device) {
  bool is_lost = false;
  ForEachLine([&](bool is_xid, const void* of, int) { is_lost |= !is_xid && device == of; });
  return is_lost;
}

unsigned Xids() {
  unsigned xids = 0;
  ForEachLine([&](bool is_xid, const void*, int) { xids += is_xid; });
  return xids;
}

}  // namespace
#endif

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};

int nvmlInit_v2() {
#ifdef FIXTURE_DRIVER_MISSING
  return 9;
#else
  return 0;
#endif
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "GPU is lost"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
#ifdef FIXTURE_NONE
  *count = 0;
#else
  *count = 2;
#endif
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
#ifndef FIXTURE_FAULTS
  static int devices[2];
#endif
#ifdef FIXTURE_GPU_NAMELESS
  if (index == 1) return 15;
#endif
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  void* first = nullptr;
  nvmlDeviceGetHandleByIndex_v2(0, &first);
  std::snprintf(uuid, size, "GPU-00000000-0000-0000-0000-00000000000%d", device == first ? 1 : 2);
  return 0;
}
int nvmlDeviceGetName(void*, char* name, unsigned size) {
  std::snprintf(name, size, "NVIDIA Fixture");
  return 0;
}
int nvmlDeviceGetMemoryInfo([[maybe_unused]] void* device, Memory* memory) {
#ifdef FIXTURE_GPU_LOST
  (void)memory;
  return 15;
#else
#ifdef FIXTURE_FAULTS
  if (IsLost(device)) return 15;
#endif
  *memory = {1ULL << 37, 1, 2};
  return 0;
#endif
}
int nvmlDeviceGetPciInfo_v3(void*, void* pci) {
  std::memset(pci, 0, 68);
  return 0;
}
int nvmlDeviceGetMigMode(void*, unsigned* now, unsigned* pending) {
#ifdef FIXTURE_MIG
  *now = *pending = 1;
  return 0;
#else
  (void)now;
  (void)pending;
  return 3;  // not supported
#endif
}

#ifdef FIXTURE_FAULTS
struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (int i = 0; i < 2; ++i) {
    if (uuids[i][0] == 0) std::snprintf(uuids[i], sizeof(uuids[i]), "%s", uuid);
    if (std::strcmp(uuids[i], uuid) != 0) continue;
    *device = &devices[i];
    return 0;
  }
  return 6;  // not found
}
int nvmlEventSetCreate(void** set) {
  *set = &devices;
  is_registered[0] = is_registered[1] = false;
  told = Xids();
  return 0;
}
int nvmlEventSetFree(void*) { return 0; }
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void*) {
  is_registered[device == &devices[0] ? 0 : 1] = true;
  return types == 8 ? 0 : 2;
}
int nvmlEventSetWait_v2(void*, EventData* event, unsigned) {
  if (Xids() < told) told = 0;  // another file
  unsigned seen = 0;
  int result = 10;  // timeout
  ForEachLine([&](bool is_xid, void* device, int number) {
    if (!is_xid || seen++ != told || result == 0) return;
    *event = {device, 8, static_cast<unsigned long long>(number), 0, 0};
    result = 0;
  });
  if (result == 0) ++told;
  for (int i = 0; i < 2; ++i) {
    if (result != 0 && is_registered[i] && IsLost(&devices[i])) return 15;
  }
  return result;
}
#endif

}  // extern "C"
