// SPDX-License-Identifier: Apache-2.0
// Reads and writes configs of Composer; "Dialects" in config/README.md
// describes each dialect. Any thread.
#ifndef CONFIG_DIALECTS_COMPOSER_COMPOSER_H_
#define CONFIG_DIALECTS_COMPOSER_COMPOSER_H_

#include <string>

#include "config/document/document.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp::config {

void ReadComposer(const Node& root, TrainConfig& config, Findings& findings);
std::string WriteComposer(const TrainConfig& config, Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_COMPOSER_COMPOSER_H_
