// SPDX-License-Identifier: Apache-2.0
// A trace of requests as text: what tenants launch, and when. Pure.
//
//   at_us,tenant,kernel_us,count
//   0,server,120,40          at the beginning of the simulation, 40 kernels of 120 µs, one after the other
//   2500,team-b/train,900.5,1
//
// The tenant is a name, or namespace/name where several tenants have the name. Rows may be in any order. Empty lines,
// lines that begin with #, and a first line with these headings are ignored.
#pragma once

#include <string>

#include "agent/simulator/command_line.h"

namespace gpuloom::simulator {

// Gives each row to its tenant of `arguments`, which then has no other work. False when a row is wrong; `error` begins with
// `file`, the line's number and what is wrong there.
[[nodiscard]] bool AddTrace(const std::string& file, const std::string& text, Arguments* arguments,
                            std::string* error);

}  // namespace gpuloom::simulator
