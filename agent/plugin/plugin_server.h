// SPDX-License-Identifier: Apache-2.0
// The device-plugin service on its socket. The only file that turns absl::Status into grpc::Status
// is its .cc. Start and Stop are called from one thread; the rest runs on gRPC's. Owns neither
// board nor allocator.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "agent/plugin/allocator.h"
#include "agent/plugin/device_board.h"
#include "agent/plugin/refused_requests.h"

namespace gpuloom {

class PluginServer {
 public:
  // Of a call for the options, in its metadata: refuse it until SetReady.
  static constexpr char kReadyKey[] = "gpuloom-ready";

  // kNoOptions: the same service, but whoever asks for its options is refused (see Registrar).
  enum class Answers { kAll, kNoOptions };

  PluginServer(const DeviceBoard* board, Allocator* allocator, Answers answers = Answers::kAll);
  ~PluginServer();

  // Replaces a stale socket. Fails when the path is longer than a socket's name may be (107
  // characters), or cannot be bound.
  absl::Status Start(const std::string& socket_path);
  // Ends the streams and removes the socket.
  void Stop();
  // How many streams of kubelets watch the device list.
  int watchers() const;
  const RefusedRequests& refusals() const;
  // For Kubernetes' probes, from now on.
  void SetReady();

 private:
  class Service;
  std::unique_ptr<Service> service_;
  struct Running;
  std::unique_ptr<Running> running_;
};

}  // namespace gpuloom
