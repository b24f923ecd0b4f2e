// SPDX-License-Identifier: Apache-2.0
// The C interface between this project and a plugin: a shared library for
// object stores that have no client here, because the client library cannot be
// linked into a single-file program. This header is all that the two sides
// share. It is C, so that compilers and standard libraries may differ. No
// exception crosses it.
//
// A plugin only makes the calls that it is given and waits for the answer.
// plugin_store.h decides concurrency, order and memory. All functions are
// called on any thread, several at the same time, except that each upload has
// one call at a time.
#ifndef DCP_IO_PLUGIN_STORE_PLUGIN_H_
#define DCP_IO_PLUGIN_STORE_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Changes with every change to the declarations below.
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
  // Differs whenever the object's bytes differ; opaque. For an upload: the id.
  tessera_text etag;
  int64_t modified_ns;  // since 1970; for an upload: when it was begun
  tessera_text label;   // see `begin`; only `head` returns it
} tessera_object;

// The receiver of a call's answer.
typedef struct tessera_answer {
  void* context;
  // Receives an error text, or the text that the call answers with. Called at
  // most once.
  void (*text)(void* context, tessera_text text);
  // One object. Ends the call early, as if it had been the last one, when it
  // does not return 0.
  int (*object)(void* context, const tessera_object* object);
} tessera_answer;

typedef struct tessera_store tessera_store;
typedef struct tessera_upload tessera_upload;

// The abilities of a store.
typedef struct tessera_traits {
  // Whether `uploads` lists uploads that other processes began. If not, the
  // server forgets those by itself.
  int lists_uploads;
  // Whether objects keep their labels.
  int has_labels;
} tessera_traits;

// Every call returns 0 or an error: a code from absl::StatusCode, equal to
// gRPC's, and a text. dcp/io/object/object_store.h defines the codes. The text
// names the store and the key, and says where to look. Failures that may pass
// have been retried, for a bounded time.
typedef struct tessera_plugin {
  uint32_t abi_version;  // TESSERA_PLUGIN_ABI_VERSION; stays the first

  // `scheme` and `bucket` come from "scheme://bucket/key". Makes a request to
  // the server, so that a wrong bucket or wrong credentials are reported here.
  int (*open)(tessera_text scheme, tessera_text bucket, tessera_traits* traits,
              tessera_store** store, const tessera_answer* answer);
  void (*close)(tessera_store* store);

  // One object.
  int (*head)(tessera_store* store, tessera_text key,
              const tessera_answer* answer);
  // The objects with keys that begin with `prefix`, in any order. With
  // `by_folder`, a slash after the prefix ends the key: such an object stands
  // for all keys with that beginning, and may come more than once.
  int (*list)(tessera_store* store, tessera_text prefix, int by_folder,
              const tessera_answer* answer);
  // Fills `into` with the object's bytes from `offset` on, if the object has
  // that ETag.
  int (*get)(tessera_store* store, tessera_text key, tessera_text etag,
             uint64_t offset, void* into, size_t length,
             const tessera_answer* answer);
  // The text is the ETag. The object appears whole, and replaces an existing
  // one.
  int (*put)(tessera_store* store, tessera_text key, const void* bytes,
             size_t length, const tessera_answer* answer);
  // An object that is absent is not an error.
  int (*remove)(tessera_store* store, tessera_text key,
                const tessera_answer* answer);

  // The text is an id, unique among this key's uploads. Nothing is visible at
  // `key` until the upload is finished. The object will have the label, letters
  // and digits, or none if it is empty.
  int (*begin)(tessera_store* store, tessera_text key, tessera_text label,
               tessera_upload** upload, const tessera_answer* answer);
  // Sends the object's next bytes. When it returns they have been sent, or
  // copied if they are few.
  int (*write)(tessera_upload* upload, const void* bytes, size_t length,
               const tessera_answer* answer);
  // The object appears. After either of these two, the upload is gone, even
  // after an error.
  int (*finish)(tessera_upload* upload, const tessera_answer* answer);
  int (*abort)(tessera_upload* upload, const tessera_answer* answer);

  // Any process's uploads to keys that begin with `prefix`, as objects.
  int (*uploads)(tessera_store* store, tessera_text prefix,
                 const tessera_answer* answer);
  // Removes an upload that another process began.
  int (*remove_upload)(tessera_store* store, tessera_text key, tessera_text id,
                       const tessera_answer* answer);
} tessera_plugin;

// The name of the function that a plugin exports. The result is never null, and
// valid until the process ends.
#define TESSERA_PLUGIN_SYMBOL "tessera_get_plugin"
typedef const tessera_plugin* (*tessera_get_plugin_function)(void);

#ifdef __cplusplus
}
#endif

#endif  // DCP_IO_PLUGIN_STORE_PLUGIN_H_
