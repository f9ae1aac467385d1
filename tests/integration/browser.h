// SPDX-License-Identifier: Apache-2.0
// A headless Chromium, for tests of pages.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/process.h"

namespace gpuloom::testing {

inline constexpr char kChromium[] = "/usr/bin/chromium";

// What a browser that has a folder to itself says of a page after some seconds of its own time.
struct Browser {
  explicit Browser(std::string folder_to_use) : folder(std::move(folder_to_use)) {
    std::filesystem::create_directory(folder);
    EXPECT_TRUE(std::filesystem::exists(kChromium))
        << "no " << kChromium << ": run deploy/install-deps.sh";
  }

  // Shows a page of this machine: its exit status. The page's path needs no quotes in a shell but single ones.
  int Run(const std::vector<std::string>& arguments, int port, const std::string& path = "/") {
    std::string command =
        std::string("exec ") + kChromium +
        " --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars "
        "--enable-logging=stderr --virtual-time-budget=6000 --user-data-dir=" +
        folder;
    for (const std::string& argument : arguments) command += " " + argument;
    command += " 'http://127.0.0.1:" + std::to_string(port) + path + "' 2>" + folder + "/log";
    Process process({"/bin/sh", "-c", command}, {"HOME=" + folder});
    const int status = process.ExitStatus(Milliseconds(120'000));
    dom = process.output();
    std::ostringstream text;
    text << std::ifstream(folder + "/log").rdbuf();
    log = text.str();
    return status;
  }

  const std::string folder;
  std::string dom;
  std::string log;
};

}  // namespace gpuloom::testing
