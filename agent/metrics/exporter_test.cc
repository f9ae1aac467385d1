// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/exporter.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>

#include "agent/metrics/testing/http.h"
#include "agent/metrics/testing/node.h"
#include "agent/testing/clock.h"

namespace {
std::atomic<bool> g_disk_hangs{false};
std::atomic<bool> g_disk_is_waited_for{false};
std::atomic<int> g_looks_begun{0};
std::atomic<int> g_looks_allowed{INT_MAX};
// The server's next look waits until it is to check again, and sees then whatever else has come.
std::atomic<bool> g_server_dozes{false};
std::atomic<bool> g_server_has_dozed{false};
}  // namespace

// In place of libc's: a disk that somebody else keeps busy.
extern "C" int fsync(int fd) {
  g_disk_is_waited_for = g_disk_hangs.load();
  while (g_disk_hangs) usleep(1000);
  return static_cast<int>(syscall(SYS_fsync, fd));
}

extern "C" int poll(pollfd* polled, nfds_t count, int timeout_ms) {
  if (g_server_dozes.exchange(false)) {
    g_server_has_dozed = true;
    ppoll(polled, 1, nullptr, nullptr);
  }
  const timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  return ppoll(polled, count, timeout_ms < 0 ? nullptr : &timeout, nullptr);
}

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ExporterTest : public MetricsNode {
 protected:
  void TearDown() override {
    exporter_.reset();
    MetricsNode::TearDown();
  }
  void Start() {
    std::string error;
    Report(1, 100);
    Observer::Options options = Options();
    options.node = [figures = options.node] {
      ++g_looks_begun;
      while (g_looks_begun > g_looks_allowed) usleep(1000);
      return figures();
    };
    exporter_.emplace(*ParseListenAddress("127.0.0.1:0", &error),
                      AllowedHosts({"gpus.example.com"}), std::move(options), &clock_);
    exporter_->Start();
    ASSERT_TRUE(WaitFor([&] { return exporter_->port() != 0; }));
  }
  template <typename Condition>
  static bool WaitFor(Condition holds) {
    for (int i = 0; i < 6000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  std::string Get(const std::string& path, const std::string& host = "localhost") {
    return HttpGet(exporter_->port(), path, host);
  }
  bool Shows(const std::string& text) {
    return WaitFor([&] { return Get("/metrics").find(text) != std::string::npos; });
  }

  TestingClock clock_;
  std::optional<Exporter> exporter_;
};

TEST_F(ExporterTest, ServesTheFiguresOfTheLastLook) {
  Start();
  EXPECT_TRUE(Shows("gpuloom_namespace_kernels_total{namespace=\"red\"} 10\n"));
  EXPECT_THAT(Get("/metrics"),
              HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(Get("/elsewhere"), StartsWith("HTTP/1.1 404 "));
  Report(2, 101);
  EXPECT_TRUE(Shows("gpuloom_namespace_kernels_total{namespace=\"red\"} 20\n"));
}

TEST_F(ExporterTest, ThePageRunsNothingButItsOwnScript) {
  Start();
  const std::string page = Get("/");
  EXPECT_THAT(page,
              AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("Content-Type: text/html"),
                    HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'sha256-"),
                    HasSubstr("frame-ancestors 'none'"), HasSubstr("</html>")));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("unsafe-")));
  EXPECT_THAT(Get("/api/v1/state"), AllOf(HasSubstr("Content-Type: application/json\r\n"),
                                          HasSubstr("\"step_seconds\":5.0")));
}

// As a browser asks for a site whose name leads here.
TEST_F(ExporterTest, Malicious_ASiteThatLetsItsNameLeadHereReadsNothing) {
  Start();
  for (const char* path : {"/", "/metrics", "/api/v1/state", "/elsewhere"}) {
    EXPECT_THAT(Get(path, "site.example.net:9464"),
                AllOf(StartsWith("HTTP/1.1 421 Misdirected Request\r\n"),
                      HasSubstr("metrics.hosts"), ::testing::Not(HasSubstr("example.net"))));
  }
  for (const char* host : {"10.0.0.1:9464", "localhost:9464", "gpus.example.com:9464",
                           "gpuloom-metrics.gpuloom-system.svc:9464"}) {
    EXPECT_THAT(Get("/metrics", host), StartsWith("HTTP/1.1 200 ")) << host;
    EXPECT_THAT(Get("/api/v1/state", host), StartsWith("HTTP/1.1 200 ")) << host;
  }
  EXPECT_THAT(Get("/healthz", "site.example.net"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(ExporterTest, IsUnhealthyWhenTheAgentsLoopStandsStill) {
  Start();
  EXPECT_THAT(Get("/healthz"), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("\r\n\r\nok\n")));
  clock_.Advance(Exporter::kStandstill + Clock::Duration(1));
  EXPECT_THAT(Get("/healthz"), AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("for 60001 ms")));
  exporter_->Ticked(clock_.Now());
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

// As when another agent takes over, counts, and dies.
TEST_F(ExporterTest,
       WhileAnotherAgentIsInChargeItServesNothingAndThenGoesOnFromWhatThatOneCounted) {
  Start();
  ASSERT_TRUE(Shows("gpuloom_namespace_kernels_total{namespace=\"red\"} 10\n"));
  exporter_->Stop();
  EXPECT_EQ(exporter_->port(), 0);
  Observer other(Options());
  other.Load(clock_.Now());
  Report(0, 1);  // the scheduler was restarted meanwhile
  other.Look(clock_.Now());
  Report(5, 2);
  other.Look(clock_.Now());
  other.Keep();
  exporter_->Start();
  ASSERT_TRUE(WaitFor([&] { return exporter_->port() != 0; }));
  EXPECT_TRUE(Shows("gpuloom_namespace_kernels_total{namespace=\"red\"} 60\n"));
}

TEST_F(ExporterTest, WithoutWhatWasCountedBeforeItShowsNoCounters) {
  const std::string file = state_ + "/metrics.json";
  std::filesystem::create_symlink(file, file);
  Start();
  EXPECT_THAT(Get("/metrics"), AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr(file + ": open: "),
                                     HasSubstr("Content-Type: text/plain; charset=utf-8\r\n")));
  EXPECT_THAT(Get("/api/v1/state"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(ExporterTest, ADiskThatHangsKeepsOnlyThoseWaitingWhoAskForWhatIsOnIt) {
  Start();
  ASSERT_TRUE(Shows("gpuloom_namespace_kernels_total{namespace=\"red\"} 10\n"));
  g_disk_hangs = true;
  std::string metrics;
  std::thread scrapes([&] {
    // Until one finds figures that are not on the disk yet.
    while (g_disk_hangs) metrics = Get("/metrics");
  });
  // Two looks later. The clock stands still, so that no look writes.
  for (int i = 3; i < 5; ++i) {
    const std::string before = Get("/api/v1/state");
    Report(i, 100 + i);
    EXPECT_TRUE(WaitFor([&] { return Get("/api/v1/state") != before; }));
  }
  EXPECT_THAT(Get("/"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get("/healthz"), HasSubstr("HTTP/1.1 200 "));
  g_disk_hangs = false;
  scrapes.join();
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(Shows("gpuloom_namespace_kernels_total{namespace=\"red\"} 40\n"));
}

// One look of the server sees both that the figures are on the disk and that somebody else asks, who has come before.
TEST_F(ExporterTest, WhoAsksWhileAnotherGetsAnAnswerIsNotForgotten) {
  Start();
  ASSERT_TRUE(Shows("gpuloom_namespace_kernels_total{namespace=\"red\"} 10\n"));
  // One more look, so that what is on the disk is no answer any more. The next one is kept for later.
  const int looks = g_looks_begun + 2;
  g_looks_allowed = looks - 1;
  EXPECT_TRUE(WaitFor([&] { return g_looks_begun == looks; }));
  const channel::UniqueFd second = ConnectTo(exporter_->port());
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 "));  // by then the second is accepted
  g_disk_hangs = true;
  std::thread first([&] { EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 200 ")); });
  EXPECT_TRUE(WaitFor([] { return g_disk_is_waited_for.load(); }));
  // Newer figures, so that those that are being written are no answer for the second.
  const std::string before = Get("/api/v1/state");
  Report(2, 101);
  g_looks_allowed = INT_MAX;
  EXPECT_TRUE(WaitFor([&] { return Get("/api/v1/state") != before; }));
  g_server_dozes = true;
  const channel::UniqueFd third = ConnectTo(exporter_->port());  // it comes round
  EXPECT_TRUE(WaitFor([] { return g_server_has_dozed.load(); }));
  EXPECT_TRUE(SendRequest(second.get(), "/metrics"));
  g_disk_hangs = false;
  EXPECT_THAT(ReadAnswer(second.get()), StartsWith("HTTP/1.1 200 "));
  first.join();
}

TEST_F(ExporterTest, KeepsWhatWasCountedWhenItEndsOnce) {
  Start();
  exporter_->Stop();
  exporter_->Stop();
  EXPECT_TRUE(std::filesystem::exists(state_ + "/metrics.json"));
}

}  // namespace
}  // namespace gpuloom
