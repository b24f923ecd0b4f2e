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
#include "dcp/checkpoint/destination/destination_path.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/checkpoint/lens/mean_weights.h"
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

// Each verb owns a struct with the options that it alone takes. Options that
// several verbs take are in one struct.

struct InspectFlags {
  std::string tensors_glob;  // empty: all
  bool chunks = false;
  bool all = false;
  size_t depth = 0;  // 0: chosen by the number of tensors
  size_t limit = 0;  // 0: none
};

struct VerifyFlags {
  double sample_percent = 100;
  bool strict = false;
};

struct DiffFlags {
  bool tensors_only = false;
  std::optional<Tolerance> tolerance;
};

// The verbs that write a checkpoint.
struct WriteFlags {
  DestinationPath dst;
  // As far as options say it; see MakeConvertSpec. With `to_dialect`, `to` is
  // that dialect's format.
  ConvertSpec spec;
  // Patterns and placements as written; spec.placements has their meaning.
  std::vector<std::pair<std::string, std::string>> place;
  std::string tp_plan;  // a file, read into spec.tensor_parallel; empty: none
  std::string tp_axis;  // empty: the default
  bool check = false;   // the result is compared with the source
  bool plan = false;
  uint32_t num_lanes = 0;
};

// Verbs that several workers can share, and `workers`.
struct WorkFlags {
  std::optional<Share> share;
  bool by_launcher = false;  // the launcher says the share
  uint32_t num_workers = 0;  // 0: the launcher says it
  uint64_t piece_bytes = kPieceBytes;
  std::string records;  // a folder, for verify
  bool wait = false;
  uint64_t wait_seconds = 0;  // 0: without end
};

struct WorkersFlags {
  bool discard = false;
};

struct CleanFlags {
  absl::Duration older_than = absl::Hours(7 * 24);
  bool yes = false;
};

struct MapsFlags {
  std::string shapes;  // a checkpoint; empty: made up
};

// The verbs that read a checkpoint.
struct SourceFlags {
  DirectMode direct = DirectMode::kAuto;
  int64_t rank = -1;
  DialectOptions dialect;
};

// Verbs that can give the tensors another program's names and shapes, and
// `maps`.
struct MapFlags {
  std::string name;  // FAMILY-SIDE-to-SIDE; empty: none
  std::string file;  // empty: none
  std::string from_side;
  std::string to_side;
  std::string config;  // a file; empty: the source's
  MappingSettings settings;
  std::vector<std::pair<std::string, std::string>> prefixes;  // by side
  MapOptions::Unmatched unmatched = MapOptions::Unmatched::kError;
  std::vector<std::string> allow_missing;  // globs
  bool force_family = false;
  std::string decode;                       // fp8-128 or mxfp4; empty: nothing
  bool encode = false;                      // fp8-128
  std::vector<std::string> encode_exclude;  // globs
  std::string adapter;                      // a folder; empty: none
  std::vector<std::string> average;         // with SRC; PATH or PATH=WEIGHT
  std::optional<double> source_weight;      // in that mean
  std::optional<MeanWindow> window;         // the weights, instead
  std::shared_ptr<const MapSpec> spec;      // made from the others by LoadMap
};

// The verbs that a server can do.
struct ServerFlags {
  std::string address;  // empty: this machine does the work
  bool tls = false;
  std::string ca_file;
  std::string cert_file;
  std::string key_file;
  std::string token_file;
};

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

  InspectFlags inspect;
  VerifyFlags verify;
  DiffFlags diff;
  WriteFlags write;
  WorkFlags work;
  WorkersFlags workers;
  CleanFlags clean;
  MapsFlags maps;
  SourceFlags source;
  MapFlags map;
  ServerFlags server;
  // Several verbs.
  SelectionOptions selection;
  uint64_t memory_bytes = kDefaultMemoryBytes;
  // All verbs.
  bool json = false;
  ProgressMode progress = ProgressMode::kAuto;
};

// How to open SRC, or A in a comparison.
OpenOptions SourceOpenOptions(const CommandLine& line);
// The same for B. It has no chosen dialect: a dialect ignores the options that
// belong to others.
OpenOptions SecondSourceOpenOptions(const CommandLine& line);

// The part of B to compare, if the line asks for a comparison: all of it after
// a conversion.
SelectionOptions SecondSelection(const CommandLine& line);
// Whether the comparison leaves objects out.
inline bool ComparesTensorsOnly(const CommandLine& line) {
  return line.diff.tensors_only || line.verb != Verb::kDiff;
}

// Whether the line asks for one share of a conversion or a verify.
inline bool IsShared(const CommandLine& line) {
  return line.work.by_launcher || line.work.share.has_value();
}

// Whether several servers share the work: commas separate their addresses.
inline bool IsFleet(const CommandLine& line) {
  return line.server.address.find(',') != std::string::npos;
}

// Whether the verb writes to standard output instead of a file.
bool WritesToStandardOutput(const CommandLine& line);

// The conversion that a writing verb asks for.
ConvertSpec MakeConvertSpec(const CommandLine& line);

// Whether the line asks for a mapping.
inline bool IsMapped(const CommandLine& line) {
  return !line.map.name.empty() || !line.map.file.empty();
}

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OPTIONS_COMMAND_LINE_H_
