// Tenants of other versions of the wire, agents of other versions of the control protocol, and tokens.
#include <set>
#include <string>

#include "agent/scheduler/scheduler_fixture.h"
#include "proto/channel/socket.h"
#include "proto/wire/session.h"

namespace gpuloom::scheduler {
namespace {

TEST_F(SchedulerTest, TenantsOfEveryOlderMinorAreServed) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const size_t hello_bytes[] = {wire::kShortestHelloBytes, offsetof(wire::Hello, token),
                                offsetof(wire::Hello, token), sizeof(wire::Hello)};
  ASSERT_EQ(std::size(hello_bytes), wire::kWireMinor + 1u) << "one for each minor";
  for (uint16_t minor = 0; minor <= wire::kWireMinor; ++minor) {
    SCOPED_TRACE(minor);
    const wire::Hello hello{wire::kHelloMagic, wire::kWireMajor, minor, 0, 0, 0, {}};
    Tenant tenant;
    ASSERT_TRUE(tenant.Connect(directory));
    ASSERT_TRUE(channel::SendMessage(tenant.socket.get(), &hello, hello_bytes[minor]));
    ASSERT_TRUE(tenant.ReceiveWelcome());
    EXPECT_TRUE(tenant.accepted()) << tenant.welcome.message;
    EXPECT_EQ(tenant.Order('m'), 0);
  }
}

TEST_F(SchedulerTest, EverySessionHasATokenOfItsOwn) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  std::set<std::string> tokens;
  for (int i = 0; i < 4; ++i) {
    Tenant tenant;
    ASSERT_TRUE(tenant.Attach(directory));
    const wire::SessionToken& token = tenant.welcome.token;
    EXPECT_FALSE(token.empty());
    tokens.emplace(reinterpret_cast<const char*>(token.bytes), sizeof(token.bytes));
  }
  EXPECT_EQ(tokens.size(), 4u);
}

TEST_F(SchedulerTest, TakingASessionUpAgainIsRefusedAndTheSessionGoesOn) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  wire::SessionToken guessed{};
  guessed.bytes[15] = 1;
  for (const wire::SessionToken& token : {tenant.welcome.token, guessed}) {
    const wire::Hello hello{wire::kHelloMagic, wire::kWireMajor, wire::kWireMinor, 0, 0, 0, token};
    Tenant again;
    ASSERT_TRUE(again.Connect(directory));
    ASSERT_TRUE(channel::SendMessage(again.socket.get(), &hello, sizeof(hello)));
    ASSERT_TRUE(again.ReceiveWelcome());
    EXPECT_EQ(again.welcome.admission, wire::Admission::kRefused);
    EXPECT_STREQ(again.welcome.message, "taking a session up again is not supported yet");
    EXPECT_TRUE(again.welcome.token.empty());
  }
  EXPECT_EQ(tenant.Order('m'), 0);
  EXPECT_EQ(State(&client, "a").sessions, 1u);
}

}  // namespace
}  // namespace gpuloom::scheduler
