// SPDX-License-Identifier: Apache-2.0
// The wire's layout against tests/golden/wire_layout.txt, and which versions are served. Running
// pods keep the shim they were started with while the node is upgraded: a change here that the
// golden file does not show would break them silently. After a lawful change (version.h says
// which):
//
//   GPULOOM_WRITE_GOLDEN=1 build/dev/tests/gpuloom_wire_layout_test
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "proto/wire/command_list.h"
#include "proto/wire/fatal.h"
#include "proto/wire/query.h"
#include "proto/wire/session.h"
#include "proto/wire/trace.h"
#include "proto/wire/trace_region.h"
#include "proto/wire/version.h"

namespace gpuloom::wire {
namespace {

constexpr char kGolden[] = GPULOOM_SOURCE_DIR "/tests/golden/wire_layout.txt";

std::string Layout() {
  std::ostringstream out;
  out << "version " << kWireMajor << "." << kWireMinor
      << "\n\n# opcode name request reply payload\n";
  for (size_t opcode = 0; opcode < kCommands.size(); ++opcode) {
    const CommandInfo& info = kCommands[opcode];
    out << opcode << " " << info.name << " " << info.request_bytes << " ";
    out << (info.has_reply ? std::to_string(info.reply_bytes) : "-") << " "
        << info.max_payload_bytes << "\n";
  }
  out << "\n# why a session ends\n";
  for (uint32_t i = 0; i <= static_cast<uint32_t>(Fatal::kBadArgument); ++i) {
    out << i << " " << FatalText(static_cast<Fatal>(i)) << "\n";
  }
  out << "\n# structures: size, then the offset of each field\n";
#define SIZE(type) out << #type << " " << sizeof(type) << "\n"
#define FIELD(type, field) out << "  " << #field << " " << offsetof(type, field) << "\n"
  SIZE(RecordHeader);
  FIELD(RecordHeader, size_bytes);
  FIELD(RecordHeader, opcode);
  FIELD(RecordHeader, reply_slot);
  FIELD(RecordHeader, payload_bytes);
  SIZE(CommandRegion);
  FIELD(CommandRegion, head.tail);
  FIELD(CommandRegion, head.tenant_sleeps);
  FIELD(CommandRegion, head.tenant_waits);
  FIELD(CommandRegion, head.host_functions_done);
  FIELD(CommandRegion, head.text_read);
  FIELD(CommandRegion, ring);
  SIZE(CompletionRegion);
  FIELD(CompletionRegion, head.head);
  FIELD(CompletionRegion, head.executor_sleeps);
  FIELD(CompletionRegion, head.fatal);
  FIELD(CompletionRegion, head.fault);
  FIELD(CompletionRegion, head.async_error_code);
  FIELD(CompletionRegion, head.async_error_count);
  FIELD(CompletionRegion, host_functions.due_count);
  FIELD(CompletionRegion, host_functions.due);
  FIELD(CompletionRegion, completed);
  FIELD(CompletionRegion, replies);
  FIELD(CompletionRegion, text.announced);
  FIELD(CompletionRegion, text.written);
  FIELD(CompletionRegion, text.fault_bytes);
  FIELD(CompletionRegion, text.fault_text);
  FIELD(CompletionRegion, text.data);
  SIZE(ReplySlot);
  FIELD(ReplySlot, ticket);
  FIELD(ReplySlot, result);
  FIELD(ReplySlot, payload_bytes);
  FIELD(ReplySlot, reply);
  FIELD(ReplySlot, payload);
  SIZE(Hello);
  FIELD(Hello, magic);
  FIELD(Hello, major);
  FIELD(Hello, minor);
  FIELD(Hello, pid);
  FIELD(Hello, trace_ms);
  FIELD(Hello, pid_namespace);
  FIELD(Hello, token);
  SIZE(Welcome);
  FIELD(Welcome, magic);
  FIELD(Welcome, major);
  FIELD(Welcome, minor);
  FIELD(Welcome, admission);
  FIELD(Welcome, message);
  FIELD(Welcome, session_id);
  FIELD(Welcome, device_range_begin);
  FIELD(Welcome, device_range_bytes);
  FIELD(Welcome, host_range_begin);
  FIELD(Welcome, host_range_bytes);
  FIELD(Welcome, pinned_limit_bytes);
  FIELD(Welcome, device);
  FIELD(Welcome, token);
  SIZE(DeviceSnapshot);
  FIELD(DeviceSnapshot, driver_version);
  FIELD(DeviceSnapshot, pci_domain);
  FIELD(DeviceSnapshot, pci_bus);
  FIELD(DeviceSnapshot, pci_device);
  FIELD(DeviceSnapshot, pci_bus_id);
  FIELD(DeviceSnapshot, name);
  FIELD(DeviceSnapshot, uuid);
  FIELD(DeviceSnapshot, total_memory_bytes);
  FIELD(DeviceSnapshot, stream_priority_least);
  FIELD(DeviceSnapshot, stream_priority_greatest);
  FIELD(DeviceSnapshot, attributes);
  SIZE(QueryAnswer);
  FIELD(QueryAnswer, magic);
  FIELD(QueryAnswer, major);
  FIELD(QueryAnswer, minor);
  FIELD(QueryAnswer, admission);
  FIELD(QueryAnswer, process_count);
  FIELD(QueryAnswer, message);
  FIELD(QueryAnswer, device);
  FIELD(QueryAnswer, used_memory_bytes);
  FIELD(QueryAnswer, driver_text);
  FIELD(QueryAnswer, processes);
  FIELD(QueryAnswer, description);
  SIZE(ProcessUse);
  FIELD(ProcessUse, pid);
  FIELD(ProcessUse, used_memory_bytes);
  SIZE(DeviceDescription);
  FIELD(DeviceDescription, pci_device_and_vendor);
  FIELD(DeviceDescription, pcie_generation);
  FIELD(DeviceDescription, pcie_width);
  FIELD(DeviceDescription, max_clock_mhz);
  FIELD(DeviceDescription, power_default_mw);
  SIZE(TraceAnswer);
  FIELD(TraceAnswer, magic);
  FIELD(TraceAnswer, major);
  FIELD(TraceAnswer, minor);
  FIELD(TraceAnswer, admission);
  FIELD(TraceAnswer, message);
  FIELD(TraceAnswer, records);
  FIELD(TraceAnswer, record_bytes);
  FIELD(TraceAnswer, session_count);
  FIELD(TraceAnswer, header_bytes);
  FIELD(TraceAnswer, name_bytes);
  FIELD(TraceAnswer, gpu_uuid);
  FIELD(TraceAnswer, sessions);
  SIZE(TraceSessionName);
  FIELD(TraceSessionName, session_id);
  FIELD(TraceSessionName, pid);
  SIZE(TraceHeader);
  FIELD(TraceHeader, records);
  FIELD(TraceHeader, name_bytes);
  FIELD(TraceHeader, dropped);
  FIELD(TraceHeader, lost);
  FIELD(TraceHeader, incomplete);
  FIELD(TraceHeader, begin_ns);
  FIELD(TraceHeader, end_ns);
  FIELD(TraceHeader, source);
  FIELD(TraceHeader, source_reason);
  SIZE(TraceRecord);
  FIELD(TraceRecord, session_id);
  FIELD(TraceRecord, begin_ns);
  FIELD(TraceRecord, end_ns);
  FIELD(TraceRecord, bytes);
  FIELD(TraceRecord, stream);
  FIELD(TraceRecord, name);
  FIELD(TraceRecord, correlation);
  FIELD(TraceRecord, kind);
  FIELD(TraceRecord, commands);
  out << "places " << kTraceRecordsAt << " " << kTraceNamesAt << " " << kTraceRegionBytes << "\n";
#undef SIZE
#undef FIELD
  return out.str();
}

TEST(WireLayout, IsTheGoldenOne) {
  if (std::getenv("GPULOOM_WRITE_GOLDEN") != nullptr) std::ofstream(kGolden) << Layout();
  std::ifstream file(kGolden);
  ASSERT_TRUE(file) << "cannot read " << kGolden;
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(golden.str(), Layout())
      << "the wire has changed: raise kWireMinor (or the major: version.h says when) and write the "
         "golden file anew in the same commit";
}

TEST(WireVersion, EveryOlderMinorOfOurMajorIsServed) {
  for (uint16_t minor = 0; minor <= kWireMinor; ++minor) EXPECT_TRUE(CanServe(kWireMajor, minor));
}

TEST(WireVersion, ANewerMinorAndEveryOtherMajorAreRefused) {
  EXPECT_FALSE(CanServe(kWireMajor, kWireMinor + 1));
  EXPECT_FALSE(CanServe(kWireMajor, UINT16_MAX));
  EXPECT_FALSE(CanServe(kWireMajor + 1, 0));
  EXPECT_FALSE(CanServe(kWireMajor - 1, 0));
  EXPECT_FALSE(CanServe(kWireMajor + 1, kWireMinor));
  EXPECT_FALSE(CanServe(UINT16_MAX, UINT16_MAX));
}

}  // namespace
}  // namespace gpuloom::wire
