// SPDX-License-Identifier: Apache-2.0
// A libnvidia-ml.so.1 for tests: two GPUs, or what FIXTURE_* asks for.
#include <cstdio>
#include <cstring>

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
  static int devices[2];
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
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
#ifdef FIXTURE_GPU_LOST
  (void)memory;
  return 15;
#else
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

}  // extern "C"
