// SPDX-License-Identifier: Apache-2.0
#include "agent/events/api_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "absl/strings/ascii.h"
#include "agent/cat.h"
#include "agent/identity/state_file.h"
#include "agent/node/one_line.h"

namespace gpuloom {
namespace {

// The most of libcurl's error text in a message.
constexpr size_t kMaxTroubleBytes = 300;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);  // set by no thread
  return value == nullptr ? "" : value;
}

constexpr char kJson[] = "application/json";

// libcurl's write callback. What does not fit is not kept, and ends the transfer: how large an
// answer is may be a tenant's choice.
size_t Keep(char* data, size_t, size_t bytes, void* answer_untyped) {
  ApiAnswer* const answer = static_cast<ApiAnswer*>(answer_untyped);
  const size_t room = ApiClient::kMaxBodyBytes - answer->body.size();
  answer->is_whole = bytes <= room;
  answer->body.append(data, std::min(bytes, room));
  // Less than was given ends the transfer.
  return answer->is_whole ? bytes : 0;
}

// libcurl's progress callback, called about once a second even if nothing comes: so long does Stop
// wait for a server that hangs. Not 0 ends the transfer.
int CheckCancelled(void* flag, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(flag)->load() ? 1 : 0;
}

struct Headers {
  ~Headers() { curl_slist_free_all(list); }
  void Add(const std::string& line) { list = curl_slist_append(list, line.c_str()); }
  curl_slist* list = nullptr;
};

}  // namespace

absl::StatusOr<std::string> ApiServerOfCluster() {
  std::string host = Variable("KUBERNETES_SERVICE_HOST");
  const std::string port = Variable("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return absl::NotFoundError(
        "kubernetes: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no "
        "pod of a cluster; name its API server with --api-server");
  }
  // An IPv6 address: the kubelet sets it without the brackets that a URL needs.
  if (host.find(':') != host.npos) host = "[" + host + "]";
  return "https://" + host + ":" + port;
}

struct ApiClient::Curl {
  Curl() : handle(curl_easy_init()) {}
  ~Curl() { curl_easy_cleanup(handle); }
  Curl(const Curl&) = delete;
  Curl& operator=(const Curl&) = delete;
  CURL* const handle;  // kept from call to call, and with it the connection
  // Why a call failed. Lives as long as the handle, which may write it between calls and at its end,
  // too.
  char why[CURL_ERROR_SIZE] = {};
};

ApiClient::ApiClient(std::string server, std::string service_account,
                     const std::atomic<bool>* is_cancelled)
    : server_(std::move(server)),
      service_account_(std::move(service_account)),
      is_cancelled_(is_cancelled),
      curl_(std::make_unique<Curl>()) {}

ApiClient::~ApiClient() = default;

absl::StatusOr<ApiAnswer> ApiClient::Get(const std::string& path) {
  return Call("GET", path, kJson, "", "");
}
absl::StatusOr<ApiAnswer> ApiClient::GetTable(const std::string& path) {
  return Call("GET", path, "application/json;as=Table;g=meta.k8s.io;v=v1", "", "");
}
absl::StatusOr<ApiAnswer> ApiClient::Post(const std::string& path, const std::string& json) {
  return Call("POST", path, kJson, json, kJson);
}
absl::StatusOr<ApiAnswer> ApiClient::Patch(const std::string& path, const std::string& json) {
  return Call("PATCH", path, kJson, json, "application/merge-patch+json");
}

absl::StatusOr<ApiAnswer> ApiClient::Call(const char* method, const std::string& path,
                                          const char* accept, const std::string& json,
                                          const char* type) {
  const absl::StatusOr<std::string> token = ReadStateFile(service_account_ + "/token");
  if (!token.ok()) {
    return absl::UnavailableError(
        Cat("kubernetes: no token of a service account: ", std::string(token.status().message())));
  }
  CURL* const curl = curl_->handle;
  if (curl == nullptr) return absl::UnavailableError("kubernetes: libcurl does not start");
  // Options only: the connection, its TLS session and the cache of names stay.
  curl_easy_reset(curl);
  const std::string url = server_ + path;
  const std::string authorities = service_account_ + "/ca.crt";
  ApiAnswer answer;
  char* const why = &curl_->why[0];
  why[0] = '\0';
  Headers headers;
  headers.Add(Cat("Authorization: Bearer ", std::string(absl::StripAsciiWhitespace(*token))));
  headers.Add(Cat("Accept: ", accept));
  if (*type != '\0') headers.Add(Cat("Content-Type: ", type));
  // None: with it a large body would wait up to a second for a server's "100 Continue".
  headers.Add("Expect:");
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  // The token must not go out in the clear, whatever --api-server says.
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https");
  // libcurl takes a request with POSTFIELDS for a POST; this gives a PATCH its name.
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.list);
  if (!json.empty()) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json.c_str());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size()));
  }
  // The cluster's own authority, and none of the system's: those may sign for anybody.
  curl_easy_setopt(curl, CURLOPT_CAINFO, authorities.c_str());
  curl_easy_setopt(curl, CURLOPT_CAPATH, nullptr);
  // The token is sent only to this server: no redirects, no proxy, no .netrc.
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  // This is one thread of several: a time-out must not be made of SIGALRM.
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, kTimeoutSeconds);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Keep);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &CheckCancelled);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, const_cast<std::atomic<bool>*>(is_cancelled_));
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
  const CURLcode result = curl_easy_perform(curl);
  // One that is too large is an answer: a server that does not answer is waited for, and no tenant may bring that
  // about.
  if (result != CURLE_OK && answer.is_whole) {
    return absl::UnavailableError(
        Cat("kubernetes: ", server_, ": ",
            OneLine(why[0] != '\0' ? why : curl_easy_strerror(result), kMaxTroubleBytes)));
  }
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  return answer;
}

}  // namespace gpuloom
