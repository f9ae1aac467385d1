// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/driver_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace gpuloom {
namespace {

TEST(DriverFeatures, NamesWhatIsOff) {
  EXPECT_EQ(MissingFeatures(0), "");
  EXPECT_EQ(MissingFeatures(13000), "");
  EXPECT_EQ(MissingFeatures(12080), "");
  EXPECT_EQ(MissingFeatures(12060),
            "the driver's CUDA version is 12.6, so these are off: from CUDA 12.8 on: "
            "conditional graph nodes that switch or have two branches, wide im2col tensor maps");
  EXPECT_EQ(MissingFeatures(12040),
            "the driver's CUDA version is 12.4, so these are off: from CUDA 12.5 on: green "
            "contexts, smPercent and smReserved; from 12.8 on: conditional graph nodes that "
            "switch or have two branches, wide im2col tensor maps");
  const std::string oldest = MissingFeatures(12020);
  for (const DriverFeature& feature : kDriverFeatures) {
    EXPECT_NE(oldest.find(feature.what), oldest.npos) << feature.what;
  }
}

// A row for each: "| 12.3 | conditional graph nodes |".
TEST(DriverFeatures, AreInTheDocument) {
  std::ifstream file(GPULOOM_SOURCE_DIR "/docs/compatibility.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const DriverFeature& feature : kDriverFeatures) {
    const std::string row = "| " + CudaVersionText(feature.since) + " | " + feature.what + " |";
    EXPECT_NE(text.str().find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace gpuloom
