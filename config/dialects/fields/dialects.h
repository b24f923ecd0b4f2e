// The dialects: each reads its tree into a TrainConfig, and all except
// axolotl's, whose files contain much more than this, write one as text. A
// reader first sets what its dialect means by default, then what the file says;
// a writer writes every value that differs from its dialect's default, so that
// the written file reads as the same config. What a dialect cannot express
// becomes a kChanged finding with the place that the value came from, or a
// problem if it is a degree of the mesh. For read_config and write_config. Each
// is in the file read.cc or write.cc of the dialect's folder. Any thread.
#ifndef CONFIG_DIALECTS_FIELDS_DIALECTS_H_
#define CONFIG_DIALECTS_FIELDS_DIALECTS_H_

#include <string>

#include "config/document/document.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp::config {

void ReadAccelerate(const Node& root, TrainConfig& config, Findings& findings);
void ReadTransformers(const Node& root, TrainConfig& config,
                      Findings& findings);
void ReadComposer(const Node& root, TrainConfig& config, Findings& findings);
void ReadTorchTitan(const Node& root, TrainConfig& config, Findings& findings);
void ReadAxolotl(const Node& root, TrainConfig& config, Findings& findings);

std::string WriteAccelerate(const TrainConfig& config, Findings& findings);
std::string WriteTransformers(const TrainConfig& config, Findings& findings);
std::string WriteComposer(const TrainConfig& config, Findings& findings);
std::string WriteTorchTitan(const TrainConfig& config, Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_DIALECTS_H_
