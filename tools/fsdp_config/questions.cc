// SPDX-License-Identifier: Apache-2.0
// Asks the questions and checks each answer.
//
// Tested by tests/tools/fsdp_config/commands_test.cc.
#include "tools/fsdp_config/questions.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "config/dialect_table.h"
#include "config/write_config.h"
#include "dcp/base/status.h"
#include "dcp/tensor/dtype.h"

namespace fsdp::tools {
namespace {

class Questions {
 public:
  Questions(std::istream& in, std::ostream& out) : in_(in), out_(out) {}

  // Repeats the question until `take` accepts the answer; shows the error each
  // time.
  absl::Status Ask(
      absl::string_view question, absl::string_view otherwise,
      const std::function<absl::Status(const std::string& answer)>& take) {
    for (;;) {
      out_ << question << " [" << otherwise << "]: " << std::flush;
      std::string line;
      if (!std::getline(in_, line)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "expected an answer, but the input ends at: ", question));
      }
      std::string answer(absl::StripAsciiWhitespace(line));
      if (answer.empty()) answer = std::string(otherwise);
      const absl::Status taken = take(answer);
      if (taken.ok()) return taken;
      out_ << taken.message() << std::endl;
    }
  }

  absl::Status AskWord(absl::string_view question,
                       const std::vector<absl::string_view>& words,
                       std::string& word) {
    return Ask(absl::StrCat(question, " (", absl::StrJoin(words, ", "), ")"),
               words[0], [&](const std::string& answer) {
                 for (const absl::string_view known : words) {
                   if (!absl::EqualsIgnoreCase(answer, known)) continue;
                   word = std::string(known);
                   return absl::OkStatus();
                 }
                 return absl::InvalidArgumentError(
                     absl::StrCat("'", answer, "' is not one of them"));
               });
  }

  absl::StatusOr<bool> AskYes(absl::string_view question, bool otherwise) {
    std::string word;
    const std::vector<absl::string_view> words =
        otherwise ? std::vector<absl::string_view>{"yes", "no"}
                  : std::vector<absl::string_view>{"no", "yes"};
    const absl::Status asked = AskWord(question, words, word);
    if (!asked.ok()) return asked;
    return word == "yes";
  }

  // A number of at least 1 that divides `divides`, unless that is 0.
  absl::Status AskCount(absl::string_view question, int64_t otherwise,
                        int64_t divides, int64_t& count) {
    return Ask(question, absl::StrCat(otherwise), [&](const std::string& text) {
      if (!absl::SimpleAtoi(text, &count) || count < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", text, "' is not a whole number of at least 1"));
      }
      if (divides % count != 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            count, " does not divide ", divides, ", the number of ranks"));
      }
      return absl::OkStatus();
    });
  }

 private:
  std::istream& in_;
  std::ostream& out_;
};

absl::Status AskForDialect(Questions& questions,
                           std::optional<ConfigDialect>& dialect) {
  if (dialect.has_value()) return absl::OkStatus();
  std::string name;
  DCP_RETURN_IF_ERROR(questions.AskWord("For which program is the config?",
                                        written_dialects(), name));
  dialect = dialect_named(name);
  return absl::OkStatus();
}

absl::Status AskForPrecision(Questions& questions, bool is_sharded,
                             PrecisionConfig& precision) {
  std::string word;
  DCP_RETURN_IF_ERROR(
      questions.AskWord("Which type computes?", {"bf16", "no", "fp16"}, word));
  if (word == "no") return absl::OkStatus();
  const dcp::DType type =
      word == "bf16" ? dcp::DType::kBFloat16 : dcp::DType::kFloat16;
  precision.param_dtype = std::optional(type);
  precision.reduce_dtype =
      std::optional(is_sharded ? type : dcp::DType::kFloat32);
  return absl::OkStatus();
}

absl::Status AskForMesh(Questions& questions, ConfigDialect dialect,
                        bool is_sharded, MeshConfig& mesh) {
  int64_t ranks = 0;
  DCP_RETURN_IF_ERROR(
      questions.AskCount("How many ranks are there?", 8, 0, ranks));
  // The other programs get it from their launchers.
  if (dialect == ConfigDialect::kAccelerate) mesh.num_processes = ranks;
  if (!is_sharded) {
    // TorchTitan has no word for as many as there are.
    mesh.data_parallel_replicate_degree =
        dialect == ConfigDialect::kTorchTitan ? ranks : kReplicateOverRest;
    mesh.data_parallel_shard_degree = int64_t{1};
    return absl::OkStatus();
  }
  // Composer's files cannot combine copies and shards.
  if (dialect == ConfigDialect::kComposer) return absl::OkStatus();
  int64_t copies = 1;
  DCP_RETURN_IF_ERROR(questions.AskCount(
      "How many copies of the model (more than 1 is HSDP)?", 1, ranks, copies));
  if (copies == 1) return absl::OkStatus();
  mesh.data_parallel_replicate_degree = copies;
  mesh.data_parallel_shard_degree = ranks / copies;
  return absl::OkStatus();
}

absl::Status AskForSharding(Questions& questions, TrainConfig& config) {
  ShardingConfig& sharding = config.sharding;
  DCP_ASSIGN_OR_RETURN(
      const bool frees,
      questions.AskYes("Free parameters after forward (ZeRO-3, else ZeRO-2)?",
                       true));
  sharding.reshard_after_forward = ReshardSetting(frees);
  DCP_RETURN_IF_ERROR(questions.Ask(
      "Which types of layers are gathered one by one, with commas?",
      "the program's own", [&](const std::string& answer) {
        if (answer != "the program's own") {
          sharding.transformer_layer_cls_to_wrap = std::vector<std::string>(
              absl::StrSplit(answer, absl::ByAnyChar(", "), absl::SkipEmpty()));
        }
        return absl::OkStatus();
      }));
  DCP_ASSIGN_OR_RETURN(
      const bool offloads,
      questions.AskYes("Keep parameters and optimizer in the host's memory?",
                       false));
  sharding.cpu_offload = offloads;
  DCP_ASSIGN_OR_RETURN(
      const bool rank0,
      questions.AskYes("Does rank 0 read the weights, and send the others "
                       "their parts?",
                       false));
  config.checkpoint.cpu_ram_efficient_loading = rank0;
  std::string type;
  DCP_RETURN_IF_ERROR(questions.AskWord("Which kind of state dict is saved?",
                                        {"sharded", "full"}, type));
  config.checkpoint.state_dict_type = type == "full"
                                          ? StateDictType::kFullStateDict
                                          : StateDictType::kShardedStateDict;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Answers> AskForConfig(std::optional<ConfigDialect> dialect,
                                     std::istream& in, std::ostream& out) {
  Questions questions(in, out);
  DCP_RETURN_IF_ERROR(AskForDialect(questions, dialect));
  Answers answers{.dialect = *dialect, .config = {}};
  std::string spread;
  DCP_RETURN_IF_ERROR(questions.AskWord("Is the model sharded, or copied?",
                                        {"sharded", "copied"}, spread));
  const bool is_sharded = spread == "sharded";
  DCP_RETURN_IF_ERROR(
      AskForMesh(questions, *dialect, is_sharded, answers.config.mesh));
  DCP_RETURN_IF_ERROR(
      AskForPrecision(questions, is_sharded, answers.config.precision));
  if (is_sharded) {
    DCP_RETURN_IF_ERROR(AskForSharding(questions, answers.config));
  }
  DCP_ASSIGN_OR_RETURN(
      const bool recomputes,
      questions.AskYes("Compute activations again in backward?", false));
  answers.config.sharding.activation_checkpointing = recomputes ? 1 : 0;
  return answers;
}

}  // namespace fsdp::tools
