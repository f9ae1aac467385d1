// SPDX-License-Identifier: Apache-2.0
// How the doctor looks at files and sockets. Changes nothing; safe from any thread.
#pragma once

#include <string>
#include <vector>

namespace gpuloom::run {

// The file's content, at most its first 1 MiB; empty if it cannot be read.
std::string ReadText(const std::string& path);
bool Exists(const std::string& path);
// The names in a folder, sorted; none if it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder);

// The version of NVIDIA's kernel module below this root: "580.159.04" or "unknown"; empty: it is not loaded.
std::string NvidiaDriver(const std::string& root);

enum class SocketState { kMissing, kDead, kListening, kClosed };
// Whether a process listens at folder/name; kClosed: this user may not connect. The path may be of any length.
SocketState ProbeSocket(const std::string& folder, const std::string& name);

}  // namespace gpuloom::run
