// SPDX-License-Identifier: Apache-2.0
// A libnvidia-ml.so.1 for tests: two GPUs, or what FIXTURE_* asks for.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifdef FIXTURE_FAULTS
namespace {

// The file that GPULOOM_NVML_FIXTURE names says what has happened: "xid INDEX NUMBER", told once to an event set that
// was there before, and "lost INDEX", as long as it says so. The GPUs are the first two whose UUIDs are asked for.
// "nameless INDEX": like the real library, it knows until it is closed what it found when it was opened. "hang INDEX": who opens
// it, or asks for that GPU's memory, waits as long as it says so.
int devices[2];
char uuids[2][64];
bool is_registered[2];  // in the event set; one that is lost lets the set tell of nothing else
unsigned told = 0;      // xids

// Calls back for each line.
template <typename Line>
void ForEachLine(Line on_line) {
  const char* const path = std::getenv("GPULOOM_NVML_FIXTURE");
  std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "r");
  if (file == nullptr) return;
  for (char line[64]; std::fgets(line, sizeof(line), file) != nullptr;) {
    char what[16] = {};
    int index = 0, number = 0;
    if (std::sscanf(line, "%15s %d %d", what, &index, &number) >= 2) {
      on_line(what, &devices[index], number);
    }
  }
  std::fclose(file);
}

bool Says(const char* word, const void* device) {
  bool says = false;
  ForEachLine([&](const char* what, const void* of, int) {
    says |= std::strcmp(what, word) == 0 && device == of;
  });
  return says;
}
bool IsLost(const void* device) { return Says("lost", device); }
void AwaitDriver(const void* device) {
  while (Says("hang", device)) usleep(10'000);
}

int opened = 0;
bool is_nameless[2];

unsigned Xids() {
  unsigned xids = 0;
  ForEachLine([&](const char* what, const void*, int) { xids += std::strcmp(what, "xid") == 0; });
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
#ifdef FIXTURE_FAULTS
  for (const int& device : devices) AwaitDriver(&device);
  if (opened++ == 0) {
    is_nameless[0] = is_nameless[1] = false;
    ForEachLine([](const char* what, const void* device, int) {
      if (std::strcmp(what, "nameless") == 0) is_nameless[device == &devices[0] ? 0 : 1] = true;
    });
  }
#endif
  return 0;
#endif
}
int nvmlShutdown() {
#ifdef FIXTURE_FAULTS
  --opened;
#endif
  return 0;
}
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
#ifdef FIXTURE_FAULTS
  if (is_nameless[index]) return 15;
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
  AwaitDriver(device);
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
  ForEachLine([&](const char* what, void* device, int number) {
    if (std::strcmp(what, "xid") != 0 || seen++ != told || result == 0) return;
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
