// SPDX-License-Identifier: Apache-2.0
// Whether this is a sanitizer build: sanitizers need what the executor otherwise gives up. A
// constant.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GPULOOM_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define GPULOOM_SANITIZED 1
#endif
#endif
#ifndef GPULOOM_SANITIZED
#define GPULOOM_SANITIZED 0
#endif

namespace gpuloom::executor {

inline constexpr bool kSanitized = GPULOOM_SANITIZED;

}  // namespace gpuloom::executor
