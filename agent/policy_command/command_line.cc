// SPDX-License-Identifier: Apache-2.0
#include "agent/policy_command/command_line.h"

#include <CLI/CLI.hpp>

#include "agent/answer/command_line.h"
#include "agent/node/node_folders.h"
#include "agent/node/size.h"

namespace gpuloom {
namespace {

void AddOutput(CLI::App* question, PolicyCommand* command) {
  AddOutputOption(question, [command](Format format) { command->format = format; });
}

// A subcommand about one policy file. All of them fill the same PolicyCommand; which was asked is
// known by its callback.
CLI::App* AddQuestion(CLI::App* policy, const std::string& name, const std::string& text,
                      PolicyCommand::Kind kind, PolicyCommand* command) {
  CLI::App* question = policy->add_subcommand(name, text);
  question->add_option("file", command->file, "the policy file, or - for standard input")
      ->required();
  question->callback([command, kind] { command->kind = kind; });
  return question;
}

}  // namespace

const CLI::App* AddPolicyCommand(CLI::App* program, PolicyCommand* command) {
  using Kind = PolicyCommand::Kind;
  CLI::App* policy = program->add_subcommand("policy", "Answers questions about a policy file.");
  // There is no default question.
  policy->require_subcommand(1);

  CLI::App* check = AddQuestion(policy, "check",
                                "Says whether a file is a policy. Exit status: 0 it is, 1 it is "
                                "not, 2 it cannot be read.",
                                Kind::kCheck, command);
  AddOutput(check, command);
  check
      ->add_option_function<std::vector<std::string>>(
          "--gpu",
          [command](const std::vector<std::string>& sizes) {
            for (const std::string& text : sizes) {
              // The last one: a product's name may have one, a size has none.
              const size_t equals = text.rfind('=');
              const size_t size_begin = equals == text.npos ? 0 : equals + 1;
              std::string error;
              const std::optional<uint64_t> size_bytes = ParseSize(text.substr(size_begin), &error);
              if (!size_bytes) throw CLI::ValidationError("--gpu", error);
              command->gpus.push_back({size_begin == 0 ? "" : text.substr(0, equals), *size_bytes});
            }
          },
          "memory of a GPU that must keep what the policy promises: 80GiB; once for each. With its "
          "product, 'NVIDIA H200=141GiB', only what gpus lets use it")
      // One value for each --gpu: the file's name may follow it.
      ->allow_extra_args(false);
  check->add_option("--slots", command->slots, "slots of each GPU")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  check
      ->add_option("--reserve", command->reserve,
                   "memory of each GPU that is kept for the executors: auto, or 2GiB")
      ->capture_default_str();
  check
      ->add_option("--multiprocessors", command->multiprocessors,
                   "of a GPU, for what smPercent and smReserved give: 132 of H100 and H200")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  check
      ->add_option("--multiprocessors-in-group", command->multiprocessors_in_group,
                   "which the driver divides no further: 8 from compute capability 9.0 on")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));

  CLI::App* explain =
      AddQuestion(policy, "explain", "Says what a namespace or a pod gets, and by which rule.",
                  Kind::kExplain, command);
  // Positions follow the order of these calls, the file's first.
  explain->add_option("namespace", command->pod_namespace, "the namespace")->required();
  explain->add_option("pod", command->pod, "a pod of it: POD, or POD/CONTAINER");
  AddOutput(explain, command);

  CLI::App* diff = AddQuestion(policy, "diff",
                               "Says what a file would change of the policy that is in force on "
                               "this node: for whom that runs, which keys, when, and "
                               "who uses more than the new quota or would be refused. Exit status: "
                               "0 nothing, 1 something, 2 it cannot be said.\n"
                               "Example: gpuloom policy diff new-policy.yaml",
                               Kind::kDiff, command);
  diff->add_option("--state-dir", command->state_dir,
                   "the agent's state folder ($GPULOOM_STATE_DIR, or /var/lib/gpuloom)");
  AddOutput(diff, command);
  // Takes the place of AddQuestion's callback. The default is set here, because an option that is
  // not given does not touch the field, and show and diff share it.
  diff->callback([command] {
    command->kind = Kind::kDiff;
    if (command->state_dir.empty()) command->state_dir = AgentsStateDir();
  });

  CLI::App* show =
      policy->add_subcommand("show",
                             "Prints the policy that is in force on this node, as the agent keeps "
                             "it, and says whether the policy file is another.\n"
                             "Example: gpuloom policy show");
  show->add_option("file", command->file, "the agent's policy file (/etc/gpuloom/policy.yaml)");
  show->add_option("--state-dir", command->state_dir,
                   "the agent's state folder ($GPULOOM_STATE_DIR, or /var/lib/gpuloom)");
  AddOutput(show, command);
  show->callback([command] {
    command->kind = Kind::kShow;
    if (command->file.empty()) command->file = "/etc/gpuloom/policy.yaml";
    if (command->state_dir.empty()) command->state_dir = AgentsStateDir();
  });

  CLI::App* simulate = AddQuestion(
      policy, "simulate",
      "Prints the shares and latencies that the policy would give to tenants of simulated GPUs.\n"
      "Example: gpuloom policy simulate policy.yaml --tenant namespace=a,name=server,requests=8ms",
      Kind::kSimulate, command);
  simulate
      ->add_option("--tenant", command->tenants,
                   "namespace=NAME,name=POD[/CONTAINER], and what gpuloom-simulate --help lists, "
                   "but for what the policy says; once for each")
      ->allow_extra_args(false);
  simulate->add_option("--tenants", command->tenants_file,
                       "a file with a tenant on each line, as --tenant; - for standard input");
  simulate->add_option("--trace", command->trace_file,
                       "a file with the tenants' requests, a row of "
                       "at_us,tenant,kernel_us,count for each; - for standard input");
  simulate
      ->add_option("--gpus", command->simulated_gpus,
                   "how many equal GPUs the tenants are dealt out to, in turn")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000));
  AddOutput(simulate, command);
  // Handed on as they are; the simulator judges them.
  for (const char* name : {"--seconds", "--seed"}) {
    simulate->add_option_function<std::string>(
        name,
        [command, name](const std::string& value) {
          command->simulator.insert(command->simulator.end(), {name, value});
        },
        "as gpuloom-simulate's");
  }
  // Takes the place of AddQuestion's callback.
  simulate->callback([command] {
    command->kind = Kind::kSimulate;
    if (command->tenants.empty() && command->tenants_file.empty()) {
      throw CLI::ValidationError("--tenant", "or --tenants is required");
    }
    const int inputs = (command->file == "-" ? 1 : 0) + (command->tenants_file == "-" ? 1 : 0) +
                       (command->trace_file == "-" ? 1 : 0);
    if (inputs > 1) throw CLI::ValidationError("-", "standard input is one file only");
  });
  return policy;
}

}  // namespace gpuloom
