// SPDX-License-Identifier: Apache-2.0
// A client of the cluster's API server, for the few calls that events need. HTTPS by libcurl. Sends the service
// account's token, which it reads for each call because Kubernetes replaces it, and trusts only the cluster's CA.
// Used by one thread; a call takes at most kTimeoutSeconds, and gives up when `is_cancelled`, which must outlive the
// client, becomes true.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace gpuloom {

// A folder with `token` and `ca.crt`, as Kubernetes mounts it into a pod.
inline constexpr char kServiceAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount";

// https://HOST:PORT of the cluster that this process runs in, from its environment. NotFound outside a cluster.
absl::StatusOr<std::string> ApiServerOfCluster();

struct ApiAnswer {
  int status = 0;        // of HTTP
  std::string body;      // JSON
  bool is_whole = true;  // false: there was more than kMaxBodyBytes, and `body` is its beginning
};

class ApiClient {
 public:
  static constexpr long kTimeoutSeconds = 5;
  // More than the list of one release's pods has. Bounded because tenants choose the size of their objects.
  static constexpr size_t kMaxBodyBytes = 4 << 20;

  // `server` is "https://HOST:PORT".
  ApiClient(std::string server, std::string service_account, const std::atomic<bool>* is_cancelled);
  ~ApiClient();

  // `path` is "/api/v1/…", made of names that Kubernetes allows. Unavailable, with a message that starts
  // "kubernetes:", if there was no answer. An answer with an error status is returned like any other.
  absl::StatusOr<ApiAnswer> Get(const std::string& path);
  // As a table, the form that API servers make for kubectl: for each object only its metadata and a few words.
  absl::StatusOr<ApiAnswer> GetTable(const std::string& path);
  absl::StatusOr<ApiAnswer> Post(const std::string& path, const std::string& json);
  absl::StatusOr<ApiAnswer> Patch(const std::string& path, const std::string& json);

 private:
  absl::StatusOr<ApiAnswer> Call(const char* method, const std::string& path, const char* accept,
                                 const std::string& json, const char* type);

  const std::string server_;
  const std::string service_account_;
  const std::atomic<bool>* const is_cancelled_;
  struct Curl;
  std::unique_ptr<Curl> curl_;
};

}  // namespace gpuloom
