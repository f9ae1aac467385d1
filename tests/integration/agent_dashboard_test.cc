// SPDX-License-Identifier: Apache-2.0
// The chart's dashboard in a real browser, with the figures that a real Prometheus has of a real agent and its tenants. Grafana
// is no part of it: tests/chart/dashboard_page.html draws as much of its format as the dashboard has, and complains of the rest. With
// GPULOOM_DASHBOARD_SCREENSHOT=FILE.png it leaves a picture there.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/integration/agent_tenant_fixture.h"
#include "tests/integration/browser.h"
#include "tests/integration/prometheus.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

// What is between the first `from` after `at` and the next `to`; empty where there is none.
std::string Between(const std::string& text, const std::string& from, const std::string& to,
                    size_t at = 0) {
  const size_t begin = text.find(from, at);
  const size_t end = begin == text.npos ? text.npos : text.find(to, begin + from.size());
  return end == text.npos ? "" : text.substr(begin + from.size(), end - begin - from.size());
}

struct Box {
  std::string title;
  int left = 0, top = 0, right = 0, bottom = 0;
};

// What is wrong with a dashboard as the page has drawn it (dashboard_page.html says how).
std::vector<std::string> WrongWith(const std::string& dom, const Json& dashboard) {
  std::vector<std::string> wrong;
  if (dom.find("data-state=\"done\"") == dom.npos) wrong.push_back("it was not drawn to the end");
  const std::string error = "<p class=\"error\">";
  for (size_t at = dom.find(error); at != dom.npos; at = dom.find(error, at + 1)) {
    wrong.push_back(Between(dom, error, "</p>", at));
  }
  std::vector<Box> boxes;
  for (const Json& panel : dashboard["panels"]) {
    const std::string title = panel["title"];
    const std::string section = Between(
        dom, "<section id=\"panel-" + std::to_string(panel["id"].get<int>()) + "\"", "</section>");
    if (section.find(">" + title + "</h2>") == section.npos) wrong.push_back(title + " is missing");
    Box box{title};
    std::istringstream place(Between(section, "data-box=\"", "\""));
    place >> box.left >> box.top >> box.right >> box.bottom;
    if (box.right <= box.left || box.bottom <= box.top) wrong.push_back(title + " has no place");
    for (const Box& other : boxes) {
      if (box.left < other.right && other.left < box.right && box.top < other.bottom &&
          other.top < box.bottom) {
        wrong.push_back(title + " lies on " + other.title);
      }
    }
    boxes.push_back(box);
    if (panel["type"] == "row") continue;
    const bool draws =
        std::ranges::any_of(std::array{"<polyline points=\"", "<output", "<td>"},
                            [&](const char* mark) { return section.find(mark) != section.npos; });
    if (!draws) wrong.push_back(title + " draws nothing");
    for (const Json& transformation : panel.value("transformations", Json::array())) {
      for (const Json& column : transformation["options"].value("renameByName", Json::object())) {
        if (section.find("<th>" + column.get<std::string>() + "</th>") == section.npos) {
          wrong.push_back(title + " has no column " + column.get<std::string>());
        }
      }
    }
  }
  return wrong;
}

bool HasNumber(const Json& results) {
  return std::ranges::any_of(results, [](const Json& series) {
    return std::isfinite(std::stod(series["value"][1].get<std::string>()));
  });
}

class AgentDashboard : public AgentTenant {
 protected:
  std::vector<std::string> AgentArguments() const override {
    return {"--metrics-address", "127.0.0.1:" + std::to_string(port_)};
  }

  const int port_ = testing::FreePort();
};

TEST_F(AgentDashboard, DrawsEveryPanelInABrowser) {
  node_.WritePolicy("namespaces: {team-speech: {timeShareMax: 20%}}");
  ASSERT_TRUE(node_.WaitForLog("policy.yaml reloaded")) << node_.AgentLog();
  const FakeContainer trains = Admit("team-vision", "train-0");
  const FakeContainer serves = Admit("team-speech", "serve-7d9f");
  const FakeContainer breaks = Admit("research", "notebook-ada");
  for (const std::vector<std::string>& habit :
       {std::vector<std::string>{"unsupported"}, {"refused", "2048"}, {"fault"}}) {
    EXPECT_EQ(Run(breaks, "gpuloom-tenant", habit).result.exit_code, 0) << habit[0];
  }
  const testing::Process training = Rest(trains);
  const testing::Process serving = Rest(serves);

  const std::string beside = node_.state_directory();
  const testing::Prometheus prometheus(beside + "-prometheus", port_);
  std::filesystem::copy(GPULOOM_SOURCE_DIR "/tests/chart/dashboard_page.html", prometheus.assets());
  std::ifstream file(GPULOOM_SOURCE_DIR "/charts/gpuloom/dashboards/gpuloom.json");
  const Json dashboard = Json::parse(file);
  for (const Json& panel : dashboard["panels"]) {
    const Json alone = {{"panels", {panel}}};
    const std::vector<std::string> asked = testing::ExpressionsOf(alone);
    EXPECT_TRUE(asked.empty() || node_.WaitFor([&] {
      return std::ranges::any_of(
          asked, [&](const std::string& promql) { return HasNumber(prometheus.Results(promql)); });
    })) << panel["title"];
  }

  testing::Browser browser(beside + "-browser");
  const std::string page = "/user/dashboard_page.html?from=now-5m&dashboard=";
  const auto show = [&](const std::string& name, const Json& shown,
                        const std::string& parameters = "") {
    std::ofstream(prometheus.assets() + "/" + name) << shown;
    EXPECT_EQ(browser.Run({"--dump-dom"}, prometheus.port(), page + name + parameters), 0)
        << browser.log;
    EXPECT_THAT(browser.log, Not(HasSubstr("Uncaught")));
    return WrongWith(browser.dom, shown);
  };
  EXPECT_THAT(show("gpuloom.json", dashboard), IsEmpty()) << browser.dom;
  EXPECT_THAT(
      browser.dom,
      AllOf(HasSubstr("<title>gpuloom</title>"), HasSubstr("<option>team-vision</option>"),
            HasSubstr("<li style=\"color:#3274d9\">GPU-"), HasSubstr("<td>serve-7d9f</td>")));
  if (const char* picture = getenv("GPULOOM_DASHBOARD_SCREENSHOT")) {
    EXPECT_EQ(browser.Run({"--screenshot=" + std::string(picture), "--window-size=1400,2900"},
                          prometheus.port(), page + "gpuloom.json"),
              0);
  }
  EXPECT_THAT(show("gpuloom.json", dashboard, "&var-namespace=research&var-namespace=team-vision"),
              IsEmpty())
      << browser.dom;
  EXPECT_THAT(browser.dom, AllOf(HasSubstr("<td>train-0</td>"), Not(HasSubstr("<td>serve-7d9f"))));

  // What would make this test fail.
  Json broken = dashboard;
  const auto panel = [&](const char* title) -> Json& {
    return *std::ranges::find(broken["panels"], Json(title),
                              [](const Json& one) { return one["title"]; });
  };
  panel("Agents")["type"] = "gauge";
  panel("Free slots")["targets"][0]["expr"] = "sum(gpuloom_gpu_slots) -";
  panel("Busy, by GPU")["targets"][0]["expr"] = "gpuloom_no_such_metric";
  panel("Memory, by GPU")["targets"][0]["legendFormat"] = "{{device}} used";
  panel("Executors")["gridPos"]["y"] = panel("Busy, by GPU")["gridPos"]["y"];
  panel("Use, by namespace")["targets"].erase(2);
  EXPECT_THAT(show("broken.json", broken),
              AllOf(Contains(HasSubstr("type gauge")), Contains("Agents draws nothing"),
                    Contains(HasSubstr("parse error")), Contains("Free slots draws nothing"),
                    Contains("Busy, by GPU draws nothing"),
                    Contains(HasSubstr("device is no label of the series")),
                    Contains(HasSubstr("Executors lies on ")),
                    Contains("Use, by namespace has no column GiB hours promised")))
      << browser.dom;
}

}  // namespace
}  // namespace gpuloom
