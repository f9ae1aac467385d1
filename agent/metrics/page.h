// SPDX-License-Identifier: Apache-2.0
// The node's page (page.html), embedded by the build: one file that reads /api/v1/state, and the
// Content-Security-Policy under which it runs. Constants.
#pragma once

namespace gpuloom {

extern const char kPage[];
extern const char kPagePolicy[];

}  // namespace gpuloom
