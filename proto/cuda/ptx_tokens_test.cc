// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/ptx_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpuloom {
namespace {

std::vector<std::string> TokensOf(std::string_view text, bool* certain) {
  std::vector<std::string> all;
  PtxTokens tokens(text);
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) {
    all.emplace_back(token);
  }
  *certain = tokens.certain();
  return all;
}

TEST(PtxTokens, AreThoseOfTheDriver) {
  using Tokens = std::vector<std::string>;
  bool certain = false;
  EXPECT_EQ(TokensOf(".visible.global/**/.u32\fx// c\\\n,y;", &certain),
            Tokens({".visible", ".global", ".u32", "x", ",", "y", ";"}));
  EXPECT_TRUE(certain);
  EXPECT_EQ(TokensOf("@%p1 cp.async.shared::cta.global [%rd1+8], $a;", &certain),
            Tokens({"@", "%p1", "cp", ".async", ".shared::cta", ".global", "[", "%rd1", "+", "8",
                    "]", ",", "$a", ";"}));
  EXPECT_TRUE(certain);
  EXPECT_EQ(TokensOf(".file 1 \"/* a; */\"\r\n/*/ .x */.y", &certain),
            Tokens({".file", "1", "\"/* a; */\"", ".y"}));
  EXPECT_TRUE(certain);
  EXPECT_EQ(TokensOf(std::string_view(".a\0.b", 5), &certain), Tokens({".a"}));
  EXPECT_TRUE(certain);
}

TEST(PtxTokens, SayWhatTheyAreNotCertainOf) {
  for (const std::string_view text :
       {"#define G .global\n", "a \v b", "a \xc2\xa0 b", "a \\ b", "/* open", "/*/", "\"open",
        "\"a\\\"", "\"a\nb\"", "a \x01 b"}) {
    bool certain = true;
    (void)TokensOf(text, &certain);
    EXPECT_FALSE(certain) << text;
  }
}

constexpr std::string_view kHead = ".version 8.0\n.target sm_90\n.address_size 64\n";
constexpr std::string_view kKernel =
    ".visible .entry k(.param .u64 .ptr .global .align 4 p, .param .u64 .ptr .const q)\n{\n"
    ".reg .u64 %rd<3>;\n.shared .align 4 .b8 room[64];\n"
    "ld .param.u64 %rd1, [p];\ncvta.to.global.u64 %rd2, %rd1;\n"
    "@%p1 ld.global.nc.u32 %r1, [%rd2];\nld.const.u32 %r2, [%rd1];\n"
    "atom.acq_rel.gpu.global.add.u32 %r1, [%rd2], 1;\nred.global.add.u32 [%rd2], 1;\n"
    "cp.async.ca.shared.global [room], [%rd2], 16;\n"
    "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [a], [b], [c];\n"
    "prefetch.global.L2 [%rd2];\nisspacep.const p, %rd1;\nst\t.global.u32 [%rd2], %r1;\nret;\n}\n";

bool WithDeclaration(std::string_view declaration) {
  return PtxDeclaresState(std::string(kHead) + std::string(declaration) + "\n" +
                          std::string(kKernel));
}

TEST(PtxDeclaresState, CodeDoesNot) {
  for (const std::string_view declaration :
       {"", "// .visible .global .u32 x;", "/* .const .u32 x; */", ".file 1 \"a.global .global\"",
        ".visible .shared .u32 x;", ".func f() { ret; }"}) {
    EXPECT_FALSE(WithDeclaration(declaration)) << declaration;
  }
}

// Each of these is a variable to CUDA 13.0's ptxas.
TEST(PtxDeclaresState, HoweverAVariableIsSpelt) {
  for (const std::string_view declaration : {".visible .global .u32 x;",
                                             ".visible.global.u32 x;",
                                             ".visible .global.align 4 .u32 x;",
                                             ".global/**/.u32 x;",
                                             ".global//\n.u32 x;",
                                             ".visible\f.global\f.u32 x;",
                                             ".visible\r.global\r.u32\rx;",
                                             "// c \\\n.visible .global .u32 x;",
                                             ".weak .global .u32 x;",
                                             ".common .global .u32 x;",
                                             ".extern .global .u32 x;",
                                             ".const .u32 x = 4;",
                                             ".visible.const.u32 x=4;",
                                             ".global .texref x;",
                                             ".global.surfref x;",
                                             ".global .u32 ld;",
                                             "/* /* */ .visible .global .u32 x; /* */",
                                             ".global .attribute(.managed) .u32 x;",
                                             "#line 3 \"a\"\n.global .u32 x;",
                                             ".func f() { .global .u32 x; ret; }"}) {
    EXPECT_TRUE(WithDeclaration(declaration)) << declaration;
  }
  EXPECT_TRUE(PtxDeclaresState(".version 8.0 .target sm_90 .address_size 64 .global .u32 x;"));
  EXPECT_TRUE(PtxDeclaresState(".version 8.0 .target sm_90, debug .const .u32 x;"));
  EXPECT_TRUE(PtxDeclaresState(".version 8.0 .target sm_90 .global .u32 x;"));
}

TEST(PtxDeclaresState, WhatIsNotCertainCounts) {
  EXPECT_TRUE(WithDeclaration("#define G global"));
  EXPECT_TRUE(WithDeclaration("/* open"));
}

TEST(PtxDeclaresFunctions, HoweverTheyAreSpelt) {
  const std::string head(kHead);
  EXPECT_FALSE(PtxDeclaresFunctions(head + std::string(kKernel)));
  EXPECT_FALSE(PtxDeclaresFunctions(head + ".extern .global .u32 x;\n// .extern .func f();\n"));
  for (const std::string_view declaration :
       {".extern .func f();", ".extern.func f();", ".extern/**/.func f();", ".extern\f.func f();",
        ".extern // f\n .func f();"}) {
    EXPECT_TRUE(PtxDeclaresFunctions(head + std::string(declaration))) << declaration;
  }
}

}  // namespace
}  // namespace gpuloom
