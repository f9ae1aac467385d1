// SPDX-License-Identifier: Apache-2.0
// Every instruction, one small program for each form, and that the documentation lists them all.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "agent/softgpu/exec/cases/instruction_cases.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/special_registers.h"
#include "agent/softgpu/exec/machine/vector_level.h"
#include "agent/softgpu/exec/testing/machine_fixture.h"

namespace gpuloom::softgpu {
namespace {

const std::span<const Case> kTables[] = {
    IntegerCases(), BitCases(),    FloatCases(),   HalfCases(), CompareCases(), ConvertCases(),
    MemoryCases(),  AtomicCases(), ControlCases(), WarpCases(), MatrixCases(),  ClusterCases()};

void RunCase(const Case& test, bool guarded) {
  SCOPED_TRACE(std::string(test.text) + (guarded ? " (even lanes only)" : ""));
  Machine machine(ProgramOf(test, guarded));
  ASSERT_NE(machine.module(), nullptr) << machine.error();
  auto* inputs = machine.memory.AllocateArray<uint64_t>(3);
  for (int i = 0; i < 3; ++i) inputs[i] = test.in[i];
  auto* results = machine.memory.AllocateArray<uint64_t>(32);
  const uint64_t scratch = machine.memory.Allocate(kCommonBytes + 32 * kScratchBytes);
  machine.launch.dynamic_shared_bytes = 64;
  machine.launch.has_clusters = true;
  const Outcome outcome = machine.Launch("test", {1}, {32}, inputs, results, scratch);
  ASSERT_EQ(outcome.kind, Outcome::kOk) << outcome.detail;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint64_t want = test.want_of != nullptr ? test.want_of(lane) : test.want;
    if (guarded && lane % 2 == 1) want = test.result == 'p' ? 0 : kUntouched;
    ASSERT_EQ(results[lane], want)
        << std::hex << "lane " << lane << ": got 0x" << results[lane] << ", want 0x" << want;
  }
}

class InstructionTest : public testing::TestWithParam<size_t> {};

// On every kind of vector unit that this processor has.
TEST_P(InstructionTest, GivesWhatPtxSays) {
  for (const VectorLevel level : {VectorLevel::kPlain, VectorLevel::kAvx2}) {
    if (level > BestVectorLevel()) break;
    SCOPED_TRACE("vector level " + std::to_string(static_cast<int>(level)));
    ChooseVectorLevel(level);
    for (const Case& test : kTables[GetParam()]) {
      RunCase(test, false);
      if (CanBeGuarded(test)) RunCase(test, true);
    }
  }
  ChooseVectorLevel(BestVectorLevel());
}

std::string TableName(const testing::TestParamInfo<size_t>& info) {
  static constexpr const char* kNames[] = {"Integer", "Bits",    "Float",    "Half",
                                           "Compare", "Convert", "Memory",   "Atomics",
                                           "Control", "Warp",    "Matrices", "Cluster"};
  return kNames[info.param];
}

INSTANTIATE_TEST_SUITE_P(Tables, InstructionTest, testing::Range(size_t{0}, std::size(kTables)),
                         TableName);

// Names of instructions in a case's text: what stands at the start of a statement.
std::set<std::string> NamesIn(const char* text) {
  std::set<std::string> names;
  std::istringstream statements(text);
  for (std::string statement; std::getline(statements, statement, ';');) {
    std::istringstream words(statement);
    for (std::string word; words >> word;) {
      if (word[0] == '@' || word[0] == '{' || word[0] == '}' || word.back() == ':') continue;
      names.insert(word.substr(0, word.find('.')));
      break;
    }
  }
  return names;
}

TEST(Instructions, EachHasACase) {
  std::set<std::string> tested;
  for (const std::span<const Case>& table : kTables) {
    for (const Case& test : table) tested.merge(NamesIn(test.text));
  }
  // It changes how many registers a warp has, which only whole warps of 128 threads may do.
  tested.insert("setmaxnreg");
  // It is of sm_90a, and takes four warps: tests/conformance.
  tested.insert("wgmma");
  // Maps are made by the driver, for launches of their own: tests/conformance.
  tested.insert("tensormap");
  // They need images: texture_test.cc, and tests/conformance.
  for (const char* name : {"suld", "suq", "sured", "sust", "tex", "tld4", "txq"})
    tested.insert(name);
  for (const Instruction& instruction : AllInstructions()) {
    EXPECT_TRUE(tested.contains(std::string(instruction.name))) << instruction.name;
  }
}

TEST(Instructions, DocumentationListsThem) {
  std::ifstream file(GPULOOM_SOFTGPU_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  const std::string text = page.str();
  std::string missing;
  for (const Instruction& instruction : AllInstructions()) {
    const std::string row =
        "| `" + std::string(instruction.name) + "` | " + std::string(instruction.forms) + " |\n";
    if (text.find(row) == std::string::npos) missing += row;
  }
  EXPECT_EQ(missing, "") << "docs/softgpu.md lacks these rows\n" << missing;
  size_t rows = 0;
  for (size_t at = text.find("\n| `"); at != std::string::npos; at = text.find("\n| `", at + 1)) {
    const size_t end = text.find('`', at + 4);
    const std::string name = text.substr(at + 4, end - at - 4);
    if (name.starts_with("GPULOOM_")) continue;
    EXPECT_NE(FindInstruction(name), nullptr) << "docs/softgpu.md lists '" << name << "'";
    ++rows;
  }
  EXPECT_EQ(rows, AllInstructions().size());
  std::istringstream registers{std::string(SpecialRegisterNames())};
  for (std::string name; registers >> name;) {
    EXPECT_NE(text.find("`" + name + "`"), std::string::npos) << "docs/softgpu.md lacks " << name;
  }
}

}  // namespace
}  // namespace gpuloom::softgpu
