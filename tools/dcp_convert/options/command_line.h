// SPDX-License-Identifier: Apache-2.0
// CommandLine: the user's request. Plain data; command_line_parser.h makes it
// from words.
#ifndef TOOLS_DCP_CONVERT_OPTIONS_COMMAND_LINE_H_
#define TOOLS_DCP_CONVERT_OPTIONS_COMMAND_LINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/share/share_convert.h"
#include "dcp/tensor/element.h"
#include "dcp/tensor/placement.h"

namespace dcp::tools {

enum class Verb : uint8_t {
  kInspect,
  kVerify,
  kDiff,
  kConvert,
  kReshard,
  kConsolidate,
  kDcpToTorch,
  kTorchToDcp,
  kJobs,
  kWorkers,
  kClean,
  kMaps,
};

enum class ProgressMode : uint8_t { kAuto, kPlain, kJson, kNone };

struct CommandLine {
  enum class Action : uint8_t {
    kRun,
    kHelp,
    kVersion,
    kLicenses,
    kManPage,
    kCompletion
  };

  Action action = Action::kRun;
  // Absent for general help and for the version.
  std::optional<Verb> verb;
  // As many as the verb requires. For `jobs`, its action and a job's name; for
  // kCompletion, the shell.
  std::vector<std::string> paths;

  // inspect
  std::string tensors_glob;  // empty: all
  bool chunks = false;
  bool all = false;
  size_t depth = 0;  // 0: chosen by the number of tensors
  size_t limit = 0;  // 0: none
  // verify
  double sample_percent = 100;
  bool strict = false;
  // diff
  bool tensors_only = false;
  std::optional<Tolerance> tolerance;
  // verbs that write
  // As far as options say it; see MakeConvertSpec. The format of `to_dialect`
  // is `to`.
  ConvertSpec spec;
  // Patterns and placements as written; spec.placements has their meaning.
  std::vector<std::pair<std::string, std::string>> place;
  std::string tp_plan;  // a file, read into spec.tensor_parallel; empty: none
  std::string tp_axis;  // empty: the default
  std::string assets;   // a folder; empty: that of the source, or of `config`
  bool check = false;   // the result is compared with the source
  bool plan = false;
  uint32_t num_lanes = 0;
  std::optional<Share> share;  // of workers that share the work
  bool workers = false;        // the launcher says the share
  uint32_t num_workers = 0;    // 0: the launcher says it
  uint64_t piece_bytes = kPieceBytes;
  std::string records;        // of workers that share a verify; workers too
  bool wait = false;          // workers too
  uint64_t wait_seconds = 0;  // 0: without end; workers too
  // workers
  bool discard = false;
  // clean
  absl::Duration older_than = absl::Hours(7 * 24);
  bool yes = false;
  // several verbs
  SelectionOptions selection;
  uint64_t memory_bytes = kDefaultMemoryBytes;
  DirectMode direct = DirectMode::kAuto;
  int64_t rank = -1;
  DialectOptions dialect;
  std::string map;       // FAMILY-SIDE-to-SIDE; empty: none
  std::string map_file;  // empty: none
  std::string from_side;
  std::string to_side;
  std::string config;  // a file; empty: the source's
  std::string shapes;  // a checkpoint, for maps; empty: made up
  MappingSettings map_settings;
  std::vector<std::pair<std::string, std::string>> map_prefixes;  // by side
  MapOptions::Unmatched unmatched = MapOptions::Unmatched::kError;
  std::vector<std::string> allow_missing;  // globs
  bool force_family = false;
  std::string decode;                       // fp8-128 or mxfp4; empty: nothing
  bool encode = false;                      // fp8-128
  std::vector<std::string> encode_exclude;  // globs
  std::string adapter;                      // a folder; empty: none
  std::vector<std::string> average;         // with SRC
  std::shared_ptr<const MapSpec> map_spec;  // made from the others by LoadMap
  // all verbs
  std::string server;  // does the work; empty: this machine does
  bool tls = false;
  std::string tls_ca;
  std::string tls_cert;
  std::string tls_key;
  std::string token_file;
  bool json = false;
  ProgressMode progress = ProgressMode::kAuto;
};

// How to open SRC, or A in a comparison.
OpenOptions SourceOptionsOf(const CommandLine& line);
// The same for B. It has no chosen dialect: a dialect ignores the options that
// belong to others.
OpenOptions SecondSourceOptionsOf(const CommandLine& line);

// The part of B to compare, if the line asks for a comparison: all of it after
// a conversion.
SelectionOptions SecondSelectionOf(const CommandLine& line);
// Whether the comparison leaves objects out.
inline bool ComparesTensorsOnly(const CommandLine& line) {
  return line.tensors_only || line.verb != Verb::kDiff;
}

// Whether the line asks for one share of a conversion or a verify.
inline bool IsShared(const CommandLine& line) {
  return line.workers || line.share.has_value();
}

// Whether several servers share the work: commas separate their addresses.
inline bool IsFleet(const CommandLine& line) {
  return line.server.find(',') != std::string::npos;
}

// Whether the verb writes to standard output instead of a file.
bool WritesToStandardOutput(const CommandLine& line);

// The conversion that a writing verb asks for.
ConvertSpec MakeConvertSpec(const CommandLine& line);

// Whether the line asks for a mapping.
inline bool IsMapped(const CommandLine& line) {
  return !line.map.empty() || !line.map_file.empty();
}

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_COMMAND_LINE_H_
