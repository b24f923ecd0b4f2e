// SPDX-License-Identifier: Apache-2.0
// The C interface between this project and a plugin: a shared library that
// reaches object stores for which there is no client here, because its library
// cannot be linked into a program of one file. Both sides include this header
// and nothing else of each other; it is C, so that compilers and standard
// libraries may differ. No exception passes it.
//
// A plugin only does what it is told and waits for the answer. What happens at
// the same time, in which order and with how much memory is decided by
// plugin_store.h. All functions are called on any thread, several at the same
// time, except for those of an upload: one at a time for each.
#ifndef DCP_IO_PLUGIN_STORE_PLUGIN_H_
#define DCP_IO_PLUGIN_STORE_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Changes with everything below.
#define TESSERA_PLUGIN_ABI_VERSION 1

// Bytes that belong to the caller or, in an answer, to the plugin, until the
// call returns. Not terminated.
typedef struct tessera_text {
  const char* data;
  size_t size;
} tessera_text;

typedef struct tessera_object {
  tessera_text key;
  uint64_t size;
  // Differs whenever the bytes of the object differ; opaque. For an upload: its
  // id.
  tessera_text etag;
  int64_t modified_ns;  // since 1970; for an upload: when it was begun
  tessera_text label;   // see `begin`; only `head` says it
} tessera_object;

// Where a call puts its answer.
typedef struct tessera_answer {
  void* context;
  // The text of an error, or what the call says that it answers. Called at most
  // once.
  void (*text)(void* context, tessera_text text);
  // One object. Ends the call early, as if it had been the last one, when it
  // does not return 0.
  int (*object)(void* context, const tessera_object* object);
} tessera_answer;

typedef struct tessera_store tessera_store;
typedef struct tessera_upload tessera_upload;

// What a store can do.
typedef struct tessera_traits {
  // Whether `uploads` lists what other processes have begun. If not, the server
  // forgets those by itself.
  int lists_uploads;
  // Whether objects keep their labels.
  int has_labels;
} tessera_traits;

// Every call returns 0 or an error: a code of absl::StatusCode, which are those
// of gRPC, and its text. dcp/io/object/object_store.h says what the codes mean.
// The text names the store and the key, and what to check. What is worth
// another try has been tried, for a bounded time.
typedef struct tessera_plugin {
  uint32_t abi_version;  // TESSERA_PLUGIN_ABI_VERSION; stays the first

  // `scheme` and `bucket` are those of "scheme://bucket/key". Asks the server
  // for something, so that what is wrong with the bucket or the credentials is
  // said here.
  int (*open)(tessera_text scheme, tessera_text bucket, tessera_traits* traits,
              tessera_store** store, const tessera_answer* answer);
  void (*close)(tessera_store* store);

  // One object.
  int (*head)(tessera_store* store, tessera_text key,
              const tessera_answer* answer);
  // The objects whose keys begin with `prefix`, in any order. With `by_folder`,
  // a slash after the prefix ends the key: such an object stands for all that
  // begin like it, and may come more than once.
  int (*list)(tessera_store* store, tessera_text prefix, int by_folder,
              const tessera_answer* answer);
  // Fills `into` from the byte `offset` of the object with that ETag.
  int (*get)(tessera_store* store, tessera_text key, tessera_text etag,
             uint64_t offset, void* into, size_t length,
             const tessera_answer* answer);
  // The text is the ETag. The object appears whole, and replaces what was
  // there, if anything.
  int (*put)(tessera_store* store, tessera_text key, const void* bytes,
             size_t length, const tessera_answer* answer);
  // An object that is absent is not an error.
  int (*remove)(tessera_store* store, tessera_text key,
                const tessera_answer* answer);

  // The text is an id that no other upload of this key has. Nothing is visible
  // at `key` until the upload is finished. The object will have the label,
  // letters and digits, or none if it is empty.
  int (*begin)(tessera_store* store, tessera_text key, tessera_text label,
               tessera_upload** upload, const tessera_answer* answer);
  // The next bytes of the object. They have been sent, or copied if they are
  // few, when it returns.
  int (*write)(tessera_upload* upload, const void* bytes, size_t length,
               const tessera_answer* answer);
  // The object appears. Whatever these two return, the upload is gone.
  int (*finish)(tessera_upload* upload, const tessera_answer* answer);
  int (*abort)(tessera_upload* upload, const tessera_answer* answer);

  // Uploads of any process, of keys that begin with `prefix`, as objects.
  int (*uploads)(tessera_store* store, tessera_text prefix,
                 const tessera_answer* answer);
  // Removes one of them that this process did not begin.
  int (*remove_upload)(tessera_store* store, tessera_text key, tessera_text id,
                       const tessera_answer* answer);
} tessera_plugin;

// The function that a plugin exports, by its name; never null, and valid until
// the process ends.
#define TESSERA_PLUGIN_SYMBOL "tessera_get_plugin"
typedef const tessera_plugin* (*tessera_get_plugin_function)(void);

#ifdef __cplusplus
}
#endif

#endif  // DCP_IO_PLUGIN_STORE_PLUGIN_H_
