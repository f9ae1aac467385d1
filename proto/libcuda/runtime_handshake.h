// SPDX-License-Identifier: Apache-2.0
// The start-up handshake of NVIDIA's CUDA runtime. Every copy of cudart asks the driver library,
// three times while it starts, for a keyed hash over what that library has told it (version,
// process, addresses of two tables, time, identities of the devices) and stops with "integrity
// checks failed" if the answer is not the expected one. Programs link cudart statically, so a
// library in place of libcuda must answer or no CUDA program runs. The answer says nothing about
// NVIDIA's driver on the node, which executes everything: an operator who does not want it turns it
// off (RuntimeHooks::handshake_allowed), and programs built on cudart then fail to start.
//
// Pure functions over their arguments: no allocation, safe from any thread and in a tenant's
// process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuloom {

// The MD2 message digest (RFC 1319), fed in pieces. Kept only because the handshake is defined with
// it.
class Md2 {
 public:
  static constexpr size_t kDigestBytes = 16;

  void Update(const void* data, size_t size_bytes);
  // Ends the message. The object must not be used afterwards.
  void Finish(uint8_t digest[kDigestBytes]);

 private:
  static constexpr size_t kBlockBytes = 16;
  void Absorb(const uint8_t block[kBlockBytes]);
  void Mix(const uint8_t block[kBlockBytes]);

  uint8_t state_[3 * kBlockBytes] = {};
  uint8_t checksum_[kBlockBytes] = {};
  uint8_t pending_[kBlockBytes] = {};
  size_t pending_bytes_ = 0;
};

// A device as reported to cudart: cuDeviceGetUuid and the PCI attributes 50, 33 and 34.
struct RuntimeDevice {
  uint8_t uuid[16];
  int32_t pci_domain;
  int32_t pci_bus;
  int32_t pci_device;
};
static_assert(sizeof(RuntimeDevice) == 28, "hashed as it lies in memory");

// What the hash covers before the devices, in this order and without padding.
struct HandshakeSubject {
  uint32_t driver_version;   // as cuDriverGetVersion reported it
  uint32_t version;          // what cudart passed: its own version, + 1, + 2
  uint32_t process;          // getpid()
  uint32_t thread;           // low half of pthread_self()
  uint64_t interface_table;  // addresses of the two tables handed out, and of the function asked
  uint64_t integrity_table;
  uint64_t integrity_function;
  uint64_t unix_seconds;  // as cudart passed it
};
static_assert(sizeof(HandshakeSubject) == 48, "hashed as it lies in memory");

// The 16 bytes cudart expects.
struct HandshakeAnswer {
  uint64_t words[2];
};
[[nodiscard]] HandshakeAnswer AnswerHandshake(const HandshakeSubject& subject,
                                              const RuntimeDevice* devices, size_t device_count);

}  // namespace gpuloom
