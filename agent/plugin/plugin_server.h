// SPDX-License-Identifier: Apache-2.0
// The device-plugin service of one resource on its socket. The only file that turns absl::Status into grpc::Status
// is its .cc. Start and Stop are called from one thread; the rest runs on gRPC's. Owns neither
// board, allocator nor refusals.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/plugin/allocator.h"
#include "agent/plugin/device_board.h"
#include "agent/plugin/refused_requests.h"

namespace gpuloom {

class PluginServer {
 public:
  // In the metadata of a call for the options: refuse it until SetReady. Kubernetes' probes send it.
  static constexpr char kReadyKey[] = "gpuloom-ready";

  // kNoOptions: the same service, but requests for its options are refused (see Registrar).
  enum class Answers { kAll, kNoOptions };

  struct Options {
    const DeviceBoard* board = nullptr;
    Allocator* allocator = nullptr;
    RefusedRequests* refusals = nullptr;
    int shape = 1;  // slots of each of its devices; 1: single slots
    Answers answers = Answers::kAll;
  };

  explicit PluginServer(const Options& options);
  ~PluginServer();

  // The names of the calls that may be refused.
  static std::vector<std::string> RefusableCalls();

  // Replaces a stale socket. Fails when the path is longer than a socket's name may be (107
  // characters), or cannot be bound.
  absl::Status Start(const std::string& socket_path);
  // Ends the streams and removes the socket.
  void Stop();
  // How many streams of kubelets watch the device list.
  int watchers() const;
  // From now on Kubernetes' probes find the agent ready.
  void SetReady();

 private:
  class Service;
  std::unique_ptr<Service> service_;
  struct Running;
  std::unique_ptr<Running> running_;
};

}  // namespace gpuloom
