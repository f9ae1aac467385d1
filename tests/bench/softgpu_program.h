// SPDX-License-Identifier: Apache-2.0
// What the programs of softgpu_kernels.cu share: device memory with numbers that are the same every time, and measuring a
// program's launches.
#pragma once

#include <cuda_runtime.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

inline void Ok(cudaError_t result) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "softgpu-kernels: %s\n", cudaGetErrorString(result));
  std::exit(1);
}

template <class T>
T* Device(size_t count) {
  T* at = nullptr;
  Ok(cudaMalloc(&at, count * sizeof(T)));
  Ok(cudaMemset(at, 0, count * sizeof(T)));
  return at;
}

inline uint32_t Hash(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// Numbers in [low, high), the same every time.
inline float* DeviceFloats(size_t count, float low, float high) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] =
        low + (high - low) * static_cast<float>(Hash(static_cast<uint32_t>(i)) >> 8) / 16777216.0f;
  }
  auto* at = Device<float>(count);
  Ok(cudaMemcpy(at, values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
  return at;
}

inline uint8_t* DeviceBytes(size_t count) {
  std::vector<uint8_t> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<uint8_t>(Hash(static_cast<uint32_t>(i)));
  auto* at = Device<uint8_t>(count);
  Ok(cudaMemcpy(at, values.data(), count, cudaMemcpyHostToDevice));
  return at;
}

// Launch() starts its kernels once; what lies at `result` in device memory behind them is judged.
struct Program {
  virtual ~Program() = default;
  virtual void Launch() = 0;
  const void* result = nullptr;
  size_t size_bytes = 0;
};

inline double ProcessorSeconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

inline double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline void Measure(const char* name, Program& program, int repeat) {
  Ok(cudaDeviceSynchronize());
  const double wall = WallSeconds(), cpu = ProcessorSeconds();
  for (int i = 0; i < repeat; ++i) program.Launch();
  Ok(cudaGetLastError());
  Ok(cudaDeviceSynchronize());
  const double wall_s = WallSeconds() - wall, cpu_s = ProcessorSeconds() - cpu;
  std::vector<uint8_t> bytes(program.size_bytes);
  Ok(cudaMemcpy(bytes.data(), program.result, program.size_bytes, cudaMemcpyDeviceToHost));
  uint64_t check = 0xcbf29ce484222325u;
  for (const uint8_t byte : bytes) check = (check ^ byte) * 0x100000001b3u;
  std::printf("{\"name\":\"%s\",\"wall_s\":%.6f,\"cpu_s\":%.6f,\"check\":\"%016llx\"}\n", name,
              wall_s, cpu_s, static_cast<unsigned long long>(check));
}
