// The device-plugin service on its socket. The only file that turns absl::Status into grpc::Status
// is its .cc. Start and Stop are called from one thread; the rest runs on gRPC's. Owns neither
// board nor allocator.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "agent/clock.h"
#include "agent/plugin/allocator.h"
#include "agent/plugin/device_board.h"

namespace gpuloom {

class PluginServer {
 public:
  PluginServer(const DeviceBoard* board, Allocator* allocator, Clock* clock);
  ~PluginServer();

  // Replaces a stale socket. Fails when the path is longer than a socket's name may be (107
  // characters), or cannot be bound.
  absl::Status Start(const std::string& socket_path);
  // Ends the streams and removes the socket.
  void Stop();
  // How many kubelets watch the device list.
  int watchers() const;

 private:
  class Service;
  Clock* const clock_;
  std::unique_ptr<Service> service_;
  struct Running;
  std::unique_ptr<Running> running_;
};

}  // namespace gpuloom
