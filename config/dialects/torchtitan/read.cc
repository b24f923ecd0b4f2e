// SPDX-License-Identifier: Apache-2.0
// Reads TorchTitan's TOML, as of 0.2.2, the last version that has it, with the
// older spellings of 0.1.0 and before, which had the degrees in [training] and
// [experimental]. Also reads the JSON that 0.2 and 0.3 print for a resolved
// config. TorchTitan itself ignores keys that it does not know; here they are
// problems if they could be about sharding.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/dialects/fields/betas.h"
#include "config/dialects/fields/float8.h"
#include "config/dialects/fields/keys.h"
#include "config/dialects/fields/optimizer_name.h"
#include "config/dialects/fields/redundant_casts.h"
#include "config/dialects/torchtitan/checkpoint.h"
#include "config/dialects/torchtitan/parallelism.h"
#include "config/dialects/torchtitan/torchtitan.h"
#include "config/document/section.h"

namespace fsdp::config {
namespace {

using dcp::DType;
using Kind = Node::Kind;

constexpr int64_t kDefaultWarmupSteps = 200;
constexpr absl::string_view kLeaveOut = "leave it out";

const Node& EmptyMap() {
  static const Node& empty = *new Node();
  return empty;
}

// A section of the file, or an empty map if there is none.
const Node& Part(Section& root, absl::string_view name) {
  const Node* node = root.Find(name);
  return node == nullptr ? EmptyMap() : *node;
}

void SetTorchTitanDefaults(TrainConfig& config) {
  config.precision.param_dtype = std::optional(DType::kBFloat16);
  config.precision.reduce_dtype = std::optional(DType::kFloat32);
  config.sharding.activation_checkpointing = 2;
  config.loop.steps = std::optional<int64_t>(10'000);
  config.loop.local_batch_size = std::optional<int64_t>(8);
  config.loop.seq_len = std::optional<int64_t>(2048);
  config.loop.max_norm = std::optional(1.0);
  config.loop.lr = std::optional(8e-4);
  config.loop.weight_decay = std::optional(0.1);
  config.loop.beta1 = std::optional(0.9);
  config.loop.beta2 = std::optional(0.95);
  config.loop.eps = std::optional(1e-8);
  config.loop.lr_schedule =
      std::optional(LrSchedule{.decay = LrDecay::kLinear,
                               .warmup_steps = kDefaultWarmupSteps,
                               .counts_from_one = true});
}

std::string ReadDumpFolder(Section section) {
  Setting<std::string> folder = std::string("./outputs");
  section.Read("dump_folder", folder);
  section.FinishLenient("they are about the job as a whole");
  return *folder;
}

// Each converter rewrites the model's layers: "quantize.linear.float8".
void RefuseConverters(Section& section) {
  const Node* converters = section.Find("converters");
  if (converters == nullptr) return;
  const bool is_float8 = std::any_of(
      converters->items.begin(), converters->items.end(),
      [](const Node& item) { return absl::StrContains(item.text, "float8"); });
  section.Refuse("converters", "",
                 is_float8 ? WithoutFloat8(kLeaveOut)
                           : "the program makes its model, and converts it; "
                             "leave it out");
}

void ReadModel(Section section) {
  RefuseConverters(section);
  section.FinishLenient("the program makes its model");
}

// For 0.3: a list of parameter groups, each with an optimizer.
void ReadParameterGroups(const Node& groups, LoopConfig& loop,
                         Findings& findings) {
  if (groups.items.empty()) return;
  if (groups.items.size() > 1) {
    findings.Problem(groups.place,
                     "has several groups of parameters, but one learning rate "
                     "is for all of them here");
    return;
  }
  Section group(groups.items[0], findings);
  ReadOptimizerName("optimizer_name", group);
  if (const Node* arguments = group.Find("optimizer_kwargs")) {
    Section section(*arguments, findings);
    section.Read("lr", RealRange{}, loop.lr);
    section.Read("weight_decay", RealRange{}, loop.weight_decay);
    section.Read("eps", RealRange{}, loop.eps);
    ReadBetas(section, loop);
    section.FinishLenient("the program makes its optimizer");
  }
  group.FinishLenient("the program makes its optimizer");
}

void ReadOptimizer(Section section, LoopConfig& loop) {
  ReadOptimizerName("name", section);
  if (const Node* groups = section.Find("param_groups")) {
    ReadParameterGroups(*groups, loop, section.findings());
  }
  section.Read("lr", RealRange{}, loop.lr);
  section.Read("weight_decay", RealRange{}, loop.weight_decay);
  section.Read("beta1", RealRange{}, loop.beta1);
  section.Read("beta2", RealRange{}, loop.beta2);
  section.Read("eps", RealRange{}, loop.eps);
  IgnoreWhenOn(section, "early_step_in_backward",
               "the optimizer steps after backward");
  section.FinishLenient("the program makes its optimizer");
}

void ReadLrSchedule(Section section, const Section& training,
                    LoopConfig& loop) {
  LrSchedule schedule = **loop.lr_schedule;
  Setting<int64_t> steps;
  if (section.Read("warmup_steps", IntegerRange{}, steps) ||
      Section(training).Read("warmup_steps", IntegerRange{}, steps)) {
    schedule.warmup_steps = *steps;
  }
  Setting<std::optional<double>> number;
  if (section.Read("decay_ratio", RealRange{.most = 1}, number)) {
    schedule.decay_ratio = **number;
  }
  if (section.Read(Spelling(section, {"min_lr_factor", "lr_min"}),
                   RealRange{.most = 1}, number)) {
    schedule.min_factor = **number;
  }
  Setting<std::optional<int64_t>> total;
  if (section.Read("total_steps", IntegerRange{.least = 1}, total)) {
    schedule.total_steps = **total;
  }
  const Choices<LrDecay> kTypes = {{"linear", LrDecay::kLinear},
                                   {"sqrt", LrDecay::kSqrt},
                                   {"cosine", LrDecay::kCosine}};
  Setting<LrDecay> decay = schedule.decay;
  section.Read(Spelling(section, {"decay_type", "lr_decay_type"}), kTypes,
               decay);
  schedule.decay = *decay;
  const bool is_written = !section.node().entries.empty();
  section.FinishLenient("they are not about the curve");
  if (is_written) {
    loop.lr_schedule = Some(schedule, section.node().place);
  } else {
    loop.lr_schedule = std::optional(schedule);
  }
}

void ReadTypes(Section& section, PrecisionConfig& precision) {
  const Choices<DType> kTypes = {{"bfloat16", DType::kBFloat16},
                                 {"float32", DType::kFloat32}};
  section.Read("dtype", kTypes, precision.dtype);
  Setting<DType> type;
  if (section.Read("mixed_precision_param", kTypes, type)) {
    precision.param_dtype = Setting(std::optional(*type), *type.place());
  }
  if (section.Read("mixed_precision_reduce", kTypes, type)) {
    precision.reduce_dtype = Setting(std::optional(*type), *type.place());
  }
  DropRedundantCasts(precision);
}

void ReadBatches(Section& section, LoopConfig& loop) {
  section.Read("steps", IntegerRange{}, loop.steps);
  section.Read(Spelling(section, {"local_batch_size", "batch_size"}),
               {.least = 1}, loop.local_batch_size);
  section.Read(Spelling(section, {"seq_len", "max_context_length"}),
               {.least = 1}, loop.seq_len);
  section.Read("max_norm", RealRange{}, loop.max_norm);
  Setting<int64_t> global = -1;  // as many as the local ones make
  section.Read("global_batch_size", {.least = -1}, global);
  if (*global == 0) {
    section.findings().Problem(*global.place(),
                               "is 0, not -1 or a number of samples");
  } else if (*global > 0) {
    loop.global_batch_size = Setting(std::optional(*global), *global.place());
  }
}

// 0.3 counts tokens; the versions before it count sequences.
void ReadTokens(Section& section, LoopConfig& loop) {
  Setting<int64_t> tokens;
  if (!section.Read("num_tokens_per_microbatch_per_dp_rank", {.least = 1},
                    tokens)) {
    return;
  }
  const int64_t seq_len = **loop.seq_len;
  if (*tokens % seq_len == 0) {
    loop.local_batch_size = Some(*tokens / seq_len, *tokens.place());
  }
  Setting<int64_t> step = -1;
  section.Read("num_tokens_per_train_step", {.least = -1}, step);
  if (*step > 0 && *step % seq_len == 0) {
    loop.global_batch_size = Some(*step / seq_len, *step.place());
  }
  for (const Setting<int64_t>& count : {tokens, step}) {
    if (*count <= 0 || *count % seq_len == 0) continue;
    section.findings().Changed(
        *count.place(),
        absl::StrCat("is read as the program's own: it is not a multiple of "
                     "max_context_length, ",
                     seq_len));
  }
}

void ReadTraining(Section& section, TrainConfig& config) {
  ReadTypes(section, config.precision);
  ReadBatches(section, config.loop);
  ReadTokens(section, config.loop);
  section.Read("enable_cpu_offload", config.sharding.cpu_offload);
  section.Read("seed", IntegerRange{}, config.loop.seed);  // 0.1.0
  IgnoreWhenOn(section, "compile", "modules run as they are");
  IgnoreWhenOn(section, "deterministic", "the program chooses its algorithms");
  section.Ignore("dataset", "the program chooses its data");
  section.Refuse("fp8_linear", "", WithoutFloat8(kLeaveOut));
  section.Refuse("enable_fp8_linear", "false", WithoutFloat8(kLeaveOut));
  section.Refuse("enable_float8_linear", "false", WithoutFloat8(kLeaveOut));
  PassOver(section, {"dataset_path", "dataloader", "gc_freq", "gc_debug",
                     "disable_cuda_graphs"});
  section.FinishLenient("the program chooses its data");
}

void ReadDebug(Section section, LoopConfig& loop) {
  section.Read("seed", IntegerRange{}, loop.seed);
  section.FinishLenient("the program chooses its algorithms");
}

// "2" means every second layer; "op" chooses operators.
void ReadSelective(Section& section, Setting<int64_t>& every) {
  const Node* node = section.Find("selective_ac_option");
  if (node == nullptr) return;
  if (node->is_scalar() && absl::EqualsIgnoreCase(node->text, "op")) {
    every = Setting<int64_t>(1, node->place);
    section.findings().Changed(
        node->place,
        "is read as 1, whole layers: the same numbers, with more arithmetic "
        "and less memory");
    return;
  }
  const std::optional<int64_t> number = AsInteger(*node);
  if (number.has_value() && *number >= 1) {
    every = Setting<int64_t>(*number, node->place);
    return;
  }
  section.findings().Problem(node->place,
                             "is neither op nor a number of layers");
}

enum class Recompute : uint8_t { kNone, kFull, kSelective, kMemoryBudget };

void ReadActivationCheckpoint(Section section, ShardingConfig& sharding) {
  Setting<int64_t>& every = sharding.activation_checkpointing;
  const Choices<Recompute> kModes = {
      {"selective", Recompute::kSelective},
      {"full", Recompute::kFull},
      {"memory_budget", Recompute::kMemoryBudget},
      {"none", Recompute::kNone}};
  Setting<Recompute> mode = Recompute::kSelective;
  section.Read("mode", kModes, mode);
  switch (*mode) {
    case Recompute::kSelective:
      ReadSelective(section, every);
      break;
    case Recompute::kFull:
      every = Setting<int64_t>(1, *mode.place());
      break;
    case Recompute::kNone:
      every = Setting<int64_t>(0, *mode.place());
      break;
    case Recompute::kMemoryBudget:
      every = Setting<int64_t>(1, *mode.place());
      section.findings().Changed(
          *mode.place(),
          "is read as full: the same numbers, with more arithmetic and less "
          "memory");
      break;
  }
  PassOver(section,
           {"selective_ac_option", "debug", "determinism_check", "early_stop",
            "memory_budget", "per_op_sac_force_recompute_mm_shapes_by_fqns",
            "preserve_rng_state", "visualize_memory_budget_pareto"});
  section.Finish();
}

// 0.3 has a class for each mode and prints its fields, or null for no
// checkpointing.
bool HasVersion3Form(const Node& root, const Node& node) {
  return root.Find("model_spec") != nullptr && node.Find("mode") == nullptr;
}

void ReadActivationCheckpoint3(const Node& node, ShardingConfig& sharding,
                               Findings& findings) {
  const bool is_on = node.kind != Kind::kNull;
  sharding.activation_checkpointing =
      Setting<int64_t>(is_on ? 1 : 0, node.place);
  if (node.Find("force_recompute_mm_shapes_by_fqns") != nullptr ||
      node.Find("memory_budget") != nullptr) {
    findings.Changed(node.place,
                     "is read as full: the same numbers, with more arithmetic "
                     "and less memory");
  }
}

void ReadFaultTolerance(Section section) {
  section.Refuse("enable", "false",
                 "all ranks stop with the first that fails, and the run goes "
                 "on from its latest step");
  section.FinishLenient("it is not enabled");
}

void IgnoreOtherSections(Section& root) {
  constexpr absl::string_view kConverted =
      "model.converters alone would switch it on";
  PassOver(root, {"model_spec", "hf_assets_path", "tokenizer", "dataloader",
                  "profiler", "validator", "override", "loss"});
  root.Ignore("comm", "time limits are the program's");
  root.Ignore("compile", "modules run as they are");
  if (const Node* float8 = root.Find("float8")) {
    Section section(*float8, root.findings());
    section.Refuse("enable_float8_linear", "false",
                   WithoutFloat8(kLeaveOut));  // before 0.1
    if (!float8->entries.empty()) root.Ignore("float8", kConverted);
  }
  root.Ignore("memory_estimation", "fsdp-config explain estimates memory");
  root.Ignore("metrics", "the program reports what it measures");
  root.Ignore("mx", kConverted);
  root.Ignore("profiling", "the program profiles itself");
  root.Ignore("quantize", kConverted);
  root.Ignore("validation", "the program validates");
}

}  // namespace

void ReadTorchTitan(const Node& root_node, TrainConfig& config,
                    Findings& findings) {
  SetTorchTitanDefaults(config);
  Section root(root_node, findings);
  const auto part = [&](absl::string_view name) {
    return Section(Part(root, name), findings);
  };
  const Node* own_folder = root.Find("dump_folder");  // 0.3
  std::string dump_folder = ReadDumpFolder(part("job"));
  if (own_folder != nullptr && own_folder->is_scalar()) {
    dump_folder = own_folder->text;
  }
  ReadModel(part("model"));
  Section training = part("training");
  Section experimental = part("experimental");
  ReadOlderDegrees(Part(root, "parallelism"), training, experimental,
                   config.mesh);
  training.Find("warmup_steps");
  ReadOptimizer(part("optimizer"), config.loop);
  ReadLrSchedule(part("lr_scheduler"), training, config.loop);
  ReadTraining(training, config);
  experimental.FinishLenient("nothing of Python is imported");
  ReadParallelism(part("parallelism"), config);
  ReadCheckpoint(part("checkpoint"), dump_folder, config.checkpoint);
  if (const Node* node = root_node.Find("activation_checkpoint");
      node != nullptr && HasVersion3Form(root_node, *node)) {
    root.Find("activation_checkpoint");
    ReadActivationCheckpoint3(*node, config.sharding, findings);
  } else {
    ReadActivationCheckpoint(part("activation_checkpoint"), config.sharding);
  }
  ReadDebug(part("debug"), config.loop);
  ReadFaultTolerance(part("fault_tolerance"));
  IgnoreOtherSections(root);
  root.FinishLenient("they are not sections of TorchTitan");
}

}  // namespace fsdp::config
