// SPDX-License-Identifier: Apache-2.0
// ConvertPlan: the work that a conversion will do, or has done. Plain data.
#ifndef DCP_CHECKPOINT_CONVERT_CONVERT_PLAN_H_
#define DCP_CHECKPOINT_CONVERT_CONVERT_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// A tensor in which a cast changed more than the precision.
struct CastLoss {
  std::string name;
  DType dtype = DType::kFloat32;  // in the output
  // Elements beyond the range, including those in files that an earlier run
  // wrote.
  uint64_t num_beyond = 0;
};

// The work of one rule in a mapping.
struct PlannedRule {
  std::string file = {};
  int line = 0;
  std::string text = {};    // as in RuleReport
  std::string shapes = {};  // as in RuleReport
  uint64_t num_instances = 0;
  uint64_t num_sources = 0;  // tensors
  uint64_t num_destinations = 0;
  uint64_t num_pieces = 0;
  uint64_t num_bytes = 0;  // of the destinations
  RuleClass rule_class = RuleClass::kBox;
  // How often the stored tensors that it takes are read. Absent when
  // converting, for a rule that takes the result of another rule, and if they
  // are read only when the result is encoded.
  std::optional<double> read_ratio = {};
};

// How a mapping changes the names and shapes.
struct PlannedMap {
  std::string name;
  std::string from;  // sides
  std::string to;
  std::string digest = {};  // of the rules' text, in hexadecimal
  // The numbers in config.json that the rules used, by key.
  std::map<std::string, int64_t> config = {};
  std::vector<PlannedRule> rules;
  // Tensors that the rules require, and that were allowed to be missing.
  std::vector<std::string> missing = {};
  std::vector<std::string> dropped;  // source tensors, by name
  std::vector<std::string> copied;   // tensors that equal another, by name
};

// The work that a conversion will do, or has done.
struct ConvertPlan {
  Format from;
  Format to;
  struct OutputFile {
    std::string name;  // in the destination, or the name of the destination
    uint64_t bytes;
  };
  std::vector<OutputFile> files;
  uint64_t num_tensors = 0;
  uint64_t num_objects = 0;
  // In a plan, the payload bytes that will be read according to the schedule of
  // reads, with gaps and repetitions, and those that the check of the source
  // reads again. When converting, the payload that is needed.
  uint64_t bytes_to_read = 0;
  uint64_t bytes_to_write = 0;  // of all files
  uint64_t memory_bytes = 0;    // payload blocks in use
  uint64_t index_bytes = 0;  // estimated maximum, in addition to memory_bytes
  uint32_t num_lanes = 0;
  // The source's losses in the parts that are converted; see SourceLoss.
  std::vector<std::string> warnings;
  std::vector<std::string> dropped;  // names of objects left out
  // Code next to the source that is not copied together with config and
  // tokenizer.
  std::vector<std::string> code_left_out;
  // Files and folders (with a slash at the end) next to the source that are not
  // copied together with config and tokenizer.
  std::vector<std::string> not_copied;
  // Keys in the source's metadata that the output cannot hold.
  std::vector<std::string> dropped_metadata;
  // Keys that are left out of a copied config.json, because they do not hold
  // for the output.
  std::vector<std::string> dropped_config;
  std::optional<PlannedMap> map;
  // From an earlier run: complete files, and the bytes read and written for
  // them.
  uint64_t num_files_kept = 0;
  uint64_t bytes_kept = 0;
  SourceCheckReport check;            // of the source; empty in a plan
  std::vector<CastLoss> cast_losses;  // empty in a plan
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CONVERT_PLAN_H_
