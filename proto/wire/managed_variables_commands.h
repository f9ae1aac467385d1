// SPDX-License-Identifier: Apache-2.0
// `__managed__` variables: where the tenant puts them, and where each of them is.
#pragma once

#include "proto/wire/command.h"
#include "proto/wire/library_commands.h"

namespace gpuloom::wire {

// The alignment of the place of a library's managed variables: more than any of them needs.
inline constexpr uint64_t kManagedAlignBytes = 512;

// Continues a LibraryLoad that was answered with managed_bytes and has loaded nothing yet: gives
// the variables their place, that many bytes of registered memory, zeroed. Reply payload: the log.
struct LibraryPlace {
  static constexpr std::string_view kName = "LibraryPlace";
  static constexpr bool kReply = true;
  struct Request {
    LibraryId library;
    uint32_t unused;
    HostPtr place;
  };
  struct Reply {
    uint32_t kernel_count;
    uint32_t unused;
  };
};

// Since 1.7. The same for variables that migrate, in ManagedSpace: code is loaded for `place`, where nothing need be
// mapped yet, and the initial values are written to `values`, that many bytes of registered memory, zeroed. The tenant
// shows its program these pages there.
struct LibraryPlaceApart {
  static constexpr std::string_view kName = "LibraryPlaceApart";
  static constexpr bool kReply = true;
  struct Request {
    LibraryId library;
    uint32_t unused;
    DevicePtr place;
    HostPtr values;
  };
  struct Reply {
    uint32_t kernel_count;
    uint32_t unused;
  };
};

// Payload: the name.
struct ManagedGet {
  static constexpr std::string_view kName = "ManagedGet";
  static constexpr bool kReply = true;
  static constexpr uint32_t kMaxPayloadBytes = kMaxNameBytes;
  struct Request {
    LibraryId library;
  };
  struct Reply {
    HostPtr address;
    uint64_t size_bytes;
  };
};

}  // namespace gpuloom::wire
