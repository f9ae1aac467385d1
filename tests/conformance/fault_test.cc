// SPDX-License-Identifier: Apache-2.0
// What breaks a process's context for good, and what must be refused before there is one. Every
// body runs in a child process. Through gpuloom, tenants of one trust domain share a fault: so
// these are run without others beside them in the same process (tests/conformance/CMakeLists.txt).
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

TEST(Init, CallsBeforeInitAreRefused) { EXPECT_EQ(RunChild("before_init"), 0); }
TEST(Init, CallsWithoutContextAreRefused) { EXPECT_EQ(RunChild("without_context"), 0); }
TEST(Fault, IllegalAddressIsSticky) { EXPECT_EQ(RunChild("illegal_address"), 0); }
TEST(Fault, InTheMiddleOfASequence) { EXPECT_EQ(RunChild("fault_in_a_sequence"), 0); }
TEST(Fault, MisalignedAddressIsSticky) { EXPECT_EQ(RunChild("misaligned_address"), 0); }
TEST(Fault, StreamSeesIt) { EXPECT_EQ(RunChild("fault_seen_by_stream"), 0); }
TEST(Fault, CallbacksAreTold) { EXPECT_EQ(RunChild("fault_tells_callbacks"), 0); }
TEST(Exit, InsideHostFunction) { EXPECT_EQ(RunChild("exit_in_host_function"), 0); }
TEST(Exit, WhileAThreadCopies) { EXPECT_EQ(RunChild("exit_while_copying"), 0); }
TEST(Exit, WithWorkInFlight) { EXPECT_EQ(RunChild("exit_with_work"), 0); }
TEST(Exit, StaticDestructorsMayCall) { EXPECT_EQ(RunChild("calls_after_main"), 0); }
TEST(Reset, TheContextBeginsAnew) { EXPECT_EQ(RunChild("context_again"), 0); }
TEST(Fork, WhileAThreadCopies) { EXPECT_EQ(RunChild("forked_while_copying"), 0); }
TEST(Fork, ChildIsRefusedAndParentGoesOn) { EXPECT_EQ(RunChild("forked"), 0); }

}  // namespace
}  // namespace gpuloom::conformance
