// SPDX-License-Identifier: Apache-2.0
// Lists each option with the verbs that take it, the help and the setter.
// Tested by tests/tools/dcp_convert/options/command_line_test.cc.
#include "tools/dcp_convert/options/option_table.h"

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/dcp_convert/options/lens_options.h"
#include "tools/dcp_convert/options/map_options.h"
#include "tools/dcp_convert/options/mesh_options.h"
#include "tools/dcp_convert/options/option_values.h"
#include "tools/options/option_setters.h"

namespace dcp::tools {
namespace {

constexpr uint32_t kWriting =
    VerbBit(Verb::kConvert) | VerbBit(Verb::kReshard) |
    VerbBit(Verb::kConsolidate) | VerbBit(Verb::kDcpToTorch) |
    VerbBit(Verb::kTorchToDcp);
constexpr uint32_t kPlacing = VerbBit(Verb::kConvert) |
                              VerbBit(Verb::kReshard) |
                              VerbBit(Verb::kTorchToDcp);
// Verbs that may write safetensors.
constexpr uint32_t kWholeTensors =
    VerbBit(Verb::kConvert) | VerbBit(Verb::kConsolidate);
constexpr uint32_t kInspect = VerbBit(Verb::kInspect);
constexpr uint32_t kVerify = VerbBit(Verb::kVerify);
constexpr uint32_t kDiff = VerbBit(Verb::kDiff);
constexpr uint32_t kJobs = VerbBit(Verb::kJobs);
constexpr uint32_t kWorkers = VerbBit(Verb::kWorkers);
constexpr uint32_t kClean = VerbBit(Verb::kClean);
constexpr uint32_t kSharing = kWriting | kVerify;
constexpr uint32_t kLocal = kInspect | kVerify | kDiff | kWriting;
constexpr uint32_t kMapping = kInspect | kDiff | kWriting;
constexpr uint32_t kMaps = VerbBit(Verb::kMaps);
constexpr uint32_t kRemote = kLocal | kJobs;
constexpr uint32_t kAll = kRemote | kWorkers | kClean | kMaps;

constexpr OptionRow<CommandLine> kOptions[] = {
    {{"tensors", "GLOB", kInspect,
      "list only names that match; * also matches dots"},
     SetTensors},
    {{"chunks", nullptr, kInspect,
      "list every chunk: its box, file, offset, length"},
     SetFlag<&CommandLine::chunks>},
    {{"all", nullptr, kInspect,
      "list every tensor; without it more than 200 are\n"
      "grouped by the beginnings of their names"},
     SetFlag<&CommandLine::all>},
    {{"depth", "N", kInspect,
      "group tensors by the first N components of their\nnames"},
     SetPositive<&CommandLine::depth>},
    {{"limit", "N", kInspect, "list at most N lines in each table"},
     SetPositive<&CommandLine::limit>},
    {{"sample", "PERCENT", kVerify,
      "check this share of the payloads; the structure is\nalways checked "
      "completely"},
     SetSample},
    {{"strict", nullptr, kVerify,
      "the exit code is 1 also if a part has no checksum to\ncompare it with"},
     SetFlag<&CommandLine::strict>},
    {{"tensors-only", nullptr, kDiff, "do not compare objects"},
     SetFlag<&CommandLine::tensors_only>},
    {{"atol", "NUMBER", kDiff,
      "elements are equal if |A - B| is at most\n"
      "atol + rtol * |B|, as in torch.allclose; one that is\n"
      "not given is 0; without both, bits are compared"},
     SetTolerance<&Tolerance::atol>},
    {{"rtol", "NUMBER", kDiff, "see --atol"}, SetTolerance<&Tolerance::rtol>},
    {{"no-equal-nan", nullptr, kDiff,
      "compare numbers, as --atol does, and treat NaN as\n"
      "different from NaN"},
     SetNoEqualNan},
    {{"to", "FORMAT", VerbBit(Verb::kConvert) | VerbBit(Verb::kConsolidate),
      "dcp, safetensors, pt, or accelerate: two folders of\nDCP from which "
      "accelerate and the Trainer resume",
      false, "dcp safetensors pt accelerate"},
     SetTo},
    {{"mesh", "[NAME:]SPEC", kPlacing,
      "the ranks to write DCP for: shard=4, dp=2,tp=2;\n"
      "another mesh of the same ranks has a name:\n"
      "experts:efsdp=2,ep=2",
      true},
     AddMesh},
    {{"place", "GLOB[@MESH]=PLACEMENTS", kPlacing,
      "how tensors lie on the mesh, one placement per\n"
      "axis: S(dim), R, SS(dim,factor); or by the names of\n"
      "axes, the first to cut first: tp:S(0),dp:S(0); last\n"
      "match wins",
      true},
     AddPlacement},
    {{"tp-plan", "FILE", kPlacing,
      "the plan of tensor parallelism, YAML or JSON, by\n"
      "which parameters and their optimizer state lie that\n"
      "no --place matches"},
     SetText<&CommandLine::tp_plan>},
    {{"tp-axis", "AXIS", kPlacing, "the axis of --tp-plan; default: tp"},
     SetText<&CommandLine::tp_axis>},
    {{"part", "PART", kDiff | kWriting,
      "take only the model, the optimizer or extra; if it\nis given once, "
      "names lose its name: model.w is w",
      true, "model optimizer extra"},
     AddPart},
    {{"strip-wrappers", nullptr, kDiff | kWriting,
      "leave _fsdp_wrapped_module, _orig_mod,\n_checkpoint_wrapped_module and "
      "a leading module out of\nnames, before they are renamed"},
     SetFlagOf<&CommandLine::selection, &SelectionOptions::strip_wrappers>},
    {{"include", "GLOB", kDiff | kWriting,
      "take only these names; * also matches dots", true},
     AddInclude},
    {{"exclude", "GLOB", kDiff | kWriting, "leave these names out", true},
     AddExclude},
    {{"rename", "s/OLD/NEW/", kDiff | kWriting,
      "rewrite names (RE2 syntax, \\1 for groups, flag g)", true},
     AddRename},
    {{"cast", "[GLOB=]DTYPE", kDiff | kWriting,
      "convert floating tensors: bf16, fp16, fp32, ...;\nlast match wins",
      true},
     AddCast},
    {{"max-shard-size", "SIZE", kWriting,
      "split output into files of at most this size: 5GB"},
     SetMaxShardSize},
    {{"drop-non-tensors", nullptr, kWriting,
      "leave out values that safetensors cannot hold\ninstead of refusing "
      "them"},
     SetFlagOf<&CommandLine::spec, &ConvertSpec::drop_non_tensors>},
    {{"metadata", "KEY=VALUE", kWholeTensors,
      "set a value of safetensors' __metadata__; those of\nthe source are "
      "kept",
      true},
     AddMetadata},
    {{"drop-metadata", nullptr, kWholeTensors,
      "leave out the __metadata__ of the source"},
     SetFlagOf<&CommandLine::spec, &ConvertSpec::drop_metadata>},
    {{"no-copy-config", nullptr, kWholeTensors,
      "do not copy config, tokenizer and generation files\nof SRC into a "
      "directory of safetensors"},
     ClearFlagOf<&CommandLine::spec, &ConvertSpec::copy_companions>},
    {{"assets", "DIR", kWholeTensors,
      "copy those files from this folder; default: next to\n"
      "the config.json of --config, else from SRC"},
     SetText<&CommandLine::assets>},
    {{"strict-cast", nullptr, kWriting,
      "refuse a cast if a value is beyond the range of the\nnew type"},
     SetFlagOf<&CommandLine::spec, &ConvertSpec::strict_cast>},
    {{"no-verify", nullptr, kWriting,
      "do not check what is read against the CRCs and\ndigests that SRC has "
      "of it"},
     ClearFlagOf<&CommandLine::spec, &ConvertSpec::verify>},
    {{"drop-unreadable", nullptr, kWriting,
      "leave out objects of unknown classes, which only DCP\nto DCP can carry"},
     SetFlagOf<&CommandLine::spec, &ConvertSpec::drop_unreadable>},
    {{"allow-losses", nullptr, kWriting,
      "convert SRC without what it has and cannot give back,\nsuch as the "
      "shapes of weights, instead of refusing it"},
     SetFlagOf<&CommandLine::spec, &ConvertSpec::allow_losses>},
    {{"check", nullptr, kWriting,
      "when DST is there, read it and SRC again, and compare\n"
      "every tensor bit by bit, through --map and as --cast\n"
      "makes it; this doubles the reading; if one differs,\n"
      "DST stays, and the exit code is 1"},
     SetFlag<&CommandLine::check>},
    {{"overwrite", nullptr, kWriting,
      "replace DST if it is a checkpoint; it stays until\nthe new one is "
      "complete"},
     SetFlagOf<&CommandLine::spec, &ConvertSpec::overwrite>},
    {{"plan", nullptr, kWriting,
      "write nothing; print the files, the bytes to read\nand write, and the "
      "memory"},
     SetFlag<&CommandLine::plan>},
    {{"workers", nullptr, kSharing,
      "do the share of this worker, as its launcher says:\nsrun, an array of "
      "sbatch, mpirun, torchrun or an\nindexed job of Kubernetes"},
     SetFlag<&CommandLine::workers>},
    {{"num-workers", "N", kSharing,
      "with --workers: how many there are, if the launcher\ndoes not say"},
     SetPositive<&CommandLine::num_workers>},
    {{"share", "K/N", kSharing,
      "do share K, from 0, of the N into which N workers\ndivide the work, "
      "whatever starts them"},
     SetShare},
    {{"piece-size", "SIZE", kSharing,
      "with --workers or --share: about how much a worker\nwrites or "
      "verifies before it records it; the same for\nall workers; default 1GiB"},
     SetPieceSize},
    {{"records", "DIR", kVerify | kWorkers,
      "a folder of what workers find that share a verify"},
     SetText<&CommandLine::records>},
    {{"wait", nullptr, kSharing | kWorkers,
      "wait until all workers are done and DST is there"},
     SetFlag<&CommandLine::wait>},
    {{"wait-for", "SECONDS", kSharing | kWorkers,
      "with --wait: fail after this time"},
     SetPositive<&CommandLine::wait_seconds>},
    {{"discard", nullptr, kWorkers,
      "remove what workers left that will not start again"},
     SetFlag<&CommandLine::discard>},
    {{"older-than", "TIME", kClean,
      "only what is older: 30m, 12h, 7d; default 7d"},
     SetOlderThan},
    {{"yes", nullptr, kClean, "remove it"}, SetFlag<&CommandLine::yes>},
    {{"max-memory", "SIZE", kVerify | kDiff | kWriting,
      "memory for payload; default 256MiB, minimum 16MiB"},
     SetMaxMemory},
    {{"lanes", "N", kWriting,
      "threads that move bytes; default: for the machine"},
     SetLanes},
    {{"direct", "MODE", kVerify | kDiff | kWriting, "O_DIRECT: auto, on or off",
      false, "auto on off"},
     SetDirect},
    {{"rank", "N", kLocal,
      "the rank whose index alone to read, if the checkpoint\n"
      "has one per rank (use_collectives=False)"},
     SetRank},
    {{"from", "NAME", kLocal,
      "read SRC as this, whatever it looks like: dcp,\nsafetensors, pt, "
      "ranks (verl, FSDP1), deepspeed,\naccelerate, transformers, megatron, "
      "torchsnapshot or\nbytecheckpoint",
      false,
      "dcp safetensors pt ranks deepspeed accelerate transformers megatron "
      "torchsnapshot bytecheckpoint"},
     SetFrom},
    {{"rank-files", "PATTERN", kLocal,
      "the files of SRC, one for each rank: w.{rank}.pth"},
     SetDialectText<&DialectOptions::rank_files>},
    {{"layout", "FILE", kLocal,
      "which parameters FSDP1's flat ones consist of; JSON"},
     SetDialectText<&DialectOptions::layout>},
    {{"like", "FILE", kLocal,
      "a file with the shapes of parameters of which SRC\nhas only flat ones"},
     SetDialectText<&DialectOptions::like>},
    {{"flat-units", "GLOB", kLocal,
      "the modules that FSDP1 wrapped, for the state of its\nflat optimizer: "
      "model.layers.*"},
     SetDialectText<&DialectOptions::flat_units>},
    {{"weights", "WHICH", kLocal,
      "DeepSpeed: master, the optimizer's in float32, or\nlow, the model's in "
      "16 bits; default: master",
      false, "master low"},
     SetWeights},
    {{"unstack-layers", nullptr, kLocal,
      "Megatron: each layer as tensors of its own"},
     SetFlagOf<&CommandLine::dialect, &DialectOptions::unstack_layers>},
    {{"optimizer-names", "WHICH", kLocal,
      "Megatron: stored, or torch, as PyTorch names an\noptimizer's state; "
      "others: stored, or order, if the\noptimizer got its parameters in the "
      "order of the\nmodel; default: stored",
      false, "stored torch order"},
     SetOptimizerNames},
    {{"map", "NAME", kMapping,
      "give the tensors the names and shapes of another\n"
      "program: FAMILY-SIDE-to-SIDE, such as\n"
      "llama-hf-to-torchtitan, or auto: as config.json and\n"
      "names say, to --to-side; see dcp-convert maps"},
     SetText<&CommandLine::map>},
    {{"map-file", "FILE", kMapping,
      "the same with a rule file of your own, and --to-side"},
     SetText<&CommandLine::map_file>},
    {{"from-side", "SIDE", kMapping | kMaps,
      "how SRC spells the model; default: as its names say"},
     SetText<&CommandLine::from_side>},
    {{"to-side", "SIDE", kMapping | kMaps, "how the result spells the model"},
     SetText<&CommandLine::to_side>},
    {{"config", "FILE", kMapping | kMaps,
      "the model's config.json; default: the one in SRC, or\nnext to it"},
     SetText<&CommandLine::config>},
    {{"shapes", "PATH", kMaps,
      "try the tensors of this checkpoint, of which only\n"
      "names and shapes are read; default: made up"},
     SetText<&CommandLine::shapes>},
    {{"set", "NAME=N", kMapping | kMaps,
      "a number of the mapping or of config.json, such as\n"
      "vocab_multiple=128; repeatable",
      true},
     AddMapSetting},
    {{"at", "SIDE=PREFIX", kMapping,
      "what stands before the names of the model on a side,\n"
      "such as torchtitan=model.; SIDE.states=PREFIX: those\n"
      "of the optimizer's states; repeatable",
      true},
     AddMapPrefix},
    {{"unmatched", "MODE", kMapping,
      "tensors that no rule names: error, keep or drop;\ndefault: error", false,
      "error keep drop"},
     SetUnmatched},
    {{"allow-missing", "GLOB", kMapping,
      "tensors that the mapping requires and that may be\n"
      "missing; repeatable",
      true},
     AddAllowMissing},
    {{"force-family", nullptr, kMapping,
      "map a model whose config.json names another type than\n"
      "the mapping is for"},
     SetFlag<&CommandLine::force_family>},
    {{"check-padding", nullptr, kWriting,
      "refuse to leave out padding that is not zero; default:\n"
      "padding is left out unseen"},
     SetFlagOf<&CommandLine::spec, &ConvertSpec::check_padding>},
    {{"decode", "KIND", kMapping,
      "compute bfloat16 of codes and scales: fp8-128, as\n"
      "DeepSeek's, or mxfp4, as gpt-oss'; with --map, the\n"
      "mapping says it",
      false, "fp8-128 mxfp4"},
     SetDecode},
    {{"encode", "KIND", kMapping,
      "store the weights of the result as codes and scales:\n"
      "fp8-128, as DeepSeek's; embeddings, heads and routers\n"
      "stay as they are",
      false, "fp8-128"},
     SetEncode},
    {{"encode-exclude", "GLOB", kMapping,
      "weights of the result that are not encoded either;\n"
      "repeatable",
      true},
     AddEncodeExclude},
    {{"adapter", "DIR", kMapping,
      "merge a LoRA adapter, of peft or of a run, into SRC"},
     SetAdapter},
    {{"average", "PATH", kMapping,
      "the mean of SRC and this checkpoint; repeatable", true},
     AddAverage},
    {{"server", "ADDRESS", kRemote,
      "let a dcp-server do it, with its paths: host:7420,\n"
      "unix:/run/dcp-server.sock, or a:7420,b:7420, which\n"
      "share a conversion; default: TESSERA_SERVER, if set"},
     SetText<&CommandLine::server>},
    {{"tls", nullptr, kRemote,
      "use TLS; the system's authorities check the server"},
     SetFlag<&CommandLine::tls>},
    {{"tls-ca", "FILE", kRemote,
      "use TLS; this authority checks the server; PEM"},
     SetText<&CommandLine::tls_ca>},
    {{"tls-cert", "FILE", kRemote,
      "the client's certificate, with --tls-key; PEM"},
     SetText<&CommandLine::tls_cert>},
    {{"tls-key", "FILE", kRemote, "the private key of --tls-cert; PEM"},
     SetText<&CommandLine::tls_key>},
    {{"token-file", "FILE", kRemote,
      "the token for the server; default: TESSERA_TOKEN"},
     SetText<&CommandLine::token_file>},
    {{"json", nullptr, kAll, "print one JSON object on standard output"},
     SetFlag<&CommandLine::json>},
    {{"progress", "MODE", kAll, "auto, plain, json or none; on standard error",
      false, "auto plain json none"},
     SetProgress},
    // Parsing handles it separately; the row is for help and suggestions.
    {{"help", nullptr, kAll, "print this text"},
     [](absl::string_view, CommandLine& line) {
       line.action = CommandLine::Action::kHelp;
       return absl::OkStatus();
     }},
};

// Words that users of cp, git, restic or huggingface_hub try first.
constexpr Habit kHabits[] = {
    {"force", "--overwrite"},
    {"f", "--overwrite"},
    {"dry-run", "--plan"},
    {"n", "--plan"},
    {"dtype", "--cast"},
    {"torch-dtype", "--cast"},
    {"quiet", "--progress none"},
    {"silent", "--progress none"},
    {"q", "--progress none"},
    {"format", "--to"},
    {"output", "DST"},
    {"output-dir", "DST"},
    {"o", "DST"},
    {"ls", "inspect"},
    {"list", "inspect"},
    {"info", "inspect"},
    {"show", "inspect"},
    {"check", "verify"},
    {"validate", "verify"},
    {"fsck", "verify"},
    {"compare", "diff"},
    {"cp", "convert"},
    {"copy", "convert"},
    {"merge", "consolidate"},
};

}  // namespace

const VerbTool& Tool() {
  static const VerbTool kTool = {
      .name = "dcp-convert",
      .verbs = AllVerbs(),
      .other_words = {"help", "man", "completion"},
      .habits = kHabits,
      .options = ToolOptions(AllOptions()),
      .syntax = {.abbreviations = true},
  };
  return kTool;
}

absl::Span<const OptionRow<CommandLine>> AllOptions() { return kOptions; }

}  // namespace dcp::tools
