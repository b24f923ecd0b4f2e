// SPDX-License-Identifier: Apache-2.0
// The identity of one save: a random UUID, as in DCP's StorageMeta.save_id. Any
// thread.
#ifndef DCP_CHECKPOINT_DESTINATION_SAVE_ID_H_
#define DCP_CHECKPOINT_DESTINATION_SAVE_ID_H_

#include <string>

namespace dcp {

// "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx" (RFC 4122, version 4).
std::string NewSaveId();

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_SAVE_ID_H_
