// SPDX-License-Identifier: Apache-2.0
#include "agent/answer/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

namespace gpuloom {
namespace {

TEST(Output, YamlAsItIsWritten) {
  const Json document = {
      {"gpu", "GPU-1"},
      {"none", Json::array()},
      {"nothing", Json::object()},
      {"share", 0.25},
      {"state_dir", "/var/lib/gpuloom"},
      {"executors", {{"now", 1}, {"lost", 0}}},
      {"domains", {{{"name", "a"}, {"busy", {{"compute", 1.5}}}}, {{"name", "b"}}}},
      {"lists", {{1, 2}, Json::array()}}};
  EXPECT_EQ(FormatDocument(document, Format::kYaml),
            "gpu: GPU-1\n"
            "none: []\n"
            "nothing: {}\n"
            "share: 0.25\n"
            "state_dir: /var/lib/gpuloom\n"
            "executors:\n"
            "  now: 1\n"
            "  lost: 0\n"
            "domains:\n"
            "  - name: a\n"
            "    busy:\n"
            "      compute: 1.5\n"
            "  - name: b\n"
            "lists:\n"
            "  - - 1\n"
            "    - 2\n"
            "  - []\n");
}

TEST(Output, ATextStaysItself) {
  for (const std::string text :
       {"",     "true", "No",   "y",       "null",         "12",    "1e3",
        "0x1f", "~",    "- a",  "a: b",    "a #b",         "*a",    "&a",
        "!a",   "%a",   "@a",   "`a",      "'a'",          "\"a\"", " a",
        "a ",   "a\nb", "a\tb", "\x1b[2J", "2026-11-25",   ".inf",  "Größe 漢字",
        "[]",   "{}",   "?",    "a\\b",    "train-7.x_y/z"}) {
    const Json document = {{"key", text}, {text, Json::array({text})}};
    const YAML::Node read = YAML::Load(FormatDocument(document, Format::kYaml));
    EXPECT_EQ(read["key"].as<std::string>(), text);
    EXPECT_EQ(read[text][0].as<std::string>(), text);
    // Quoted or of letters that no version of YAML takes for something else.
    EXPECT_TRUE(read["key"].Tag() == "!" || text == "train-7.x_y/z") << text;
  }
  EXPECT_EQ(YAML::Load(FormatDocument({{"none", nullptr}}, Format::kYaml))["none"].Type(),
            YAML::NodeType::Null);
}

TEST(Output, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(FormatDocument({{"name", "a\xff"}}, Format::kJson), "{\n  \"name\": \"a\uFFFD\"\n}\n");
  EXPECT_EQ(FormatDocument({{"name", "a\xff"}}, Format::kYaml), "name: \"a\uFFFD\"\n");
}

TEST(Output, FormatsHaveNames) {
  EXPECT_EQ(FormatNamed("yaml"), Format::kYaml);
  EXPECT_EQ(FormatNamed("json"), Format::kJson);
  EXPECT_EQ(FormatNamed("table"), Format::kTable);
  EXPECT_EQ(FormatNamed("xml"), std::nullopt);
}

}  // namespace
}  // namespace gpuloom
