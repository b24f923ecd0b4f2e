/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what is in a checkpoint of any format, as JSON:
 *
 *   describe_checkpoint PATH
 */
#include <stdio.h>
#include <tessera.h>

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "Usage: describe_checkpoint PATH\nTessera %s\n",
            tessera_version());
    return 2;
  }
  tessera_checkpoint* checkpoint = NULL;
  tessera_bytes* json = NULL;
  tessera_error* error = tessera_checkpoint_open(argv[1], NULL, &checkpoint);
  if (error == NULL) error = tessera_checkpoint_describe(checkpoint, &json);
  if (error != NULL) {
    fprintf(stderr, "%s: %s\n", tessera_error_path(error),
            tessera_error_message(error));
    tessera_error_free(error);
    if (checkpoint != NULL) tessera_checkpoint_free(checkpoint);
    return 1;
  }
  puts((const char*)tessera_bytes_data(json));
  tessera_bytes_free(json);
  tessera_checkpoint_free(checkpoint);
  return 0;
}
