/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of Tessera: reads checkpoints in every format that the core
 * knows, and writes DCP checkpoints of many processes that appear whole or not
 * at all. The Python package calls it; other languages can call it too.
 * README.md has an example.
 *
 * Every function that can fail returns null, or an error that the caller frees.
 * Texts are UTF-8 and end with a zero byte; the callee copies them. A handle is
 * used by one thread at a time, except where a function says otherwise;
 * different handles are independent. After fork(), a child uses only handles
 * that it has made itself. No function reads or changes signal handlers.
 *
 * Blocks of memory for reading and writing that the system does not provide are
 * an error, RESOURCE_EXHAUSTED. As in most C++ programs, the process ends if it
 * lacks memory for anything smaller. */
#ifndef CAPI_TESSERA_H_
#define CAPI_TESSERA_H_

#include <stddef.h>
#include <stdint.h>

#define TESSERA_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ---- */

typedef struct tessera_error tessera_error;

/* The canonical codes, with the numbers of gRPC: 1 CANCELLED,
 * 3 INVALID_ARGUMENT, 5 NOT_FOUND, 6 ALREADY_EXISTS, 7 PERMISSION_DENIED,
 * 8 RESOURCE_EXHAUSTED, 9 FAILED_PRECONDITION, 12 UNIMPLEMENTED, 14
 * UNAVAILABLE, 15 DATA_LOSS. */
TESSERA_API int tessera_error_code(const tessera_error* error);
/* For people. Valid until the error is freed, as are the following. */
TESSERA_API const char* tessera_error_message(const tessera_error* error);
/* The error's place; empty if it is not known: the checkpoint, a file in it,
 * the name of a tensor or object, and an offset in the file. */
TESSERA_API const char* tessera_error_path(const tessera_error* error);
TESSERA_API const char* tessera_error_file(const tessera_error* error);
TESSERA_API const char* tessera_error_tensor(const tessera_error* error);
TESSERA_API const char* tessera_error_offset(const tessera_error* error);
TESSERA_API void tessera_error_free(tessera_error* error);

/* ---- Bytes that the library returns ---- */

typedef struct tessera_bytes tessera_bytes;

/* Valid until they are freed. A zero byte that does not count follows them. */
TESSERA_API const uint8_t* tessera_bytes_data(const tessera_bytes* bytes);
TESSERA_API size_t tessera_bytes_size(const tessera_bytes* bytes);
TESSERA_API void tessera_bytes_free(tessera_bytes* bytes);

/* The CRC-32C of bytes, which a daemon sends with them (proto/README.md). */
TESSERA_API uint32_t tessera_crc32c(const void* data, size_t size);

/* ---- Stopping a call ---- */

typedef struct tessera_stop tessera_stop;

/* A call that was given the stop returns CANCELLED soon after the request,
 * which any thread can make. Free it after these calls have returned. */
TESSERA_API tessera_stop* tessera_stop_new(void);
TESSERA_API void tessera_stop_request(tessera_stop* stop);
TESSERA_API void tessera_stop_free(tessera_stop* stop);

/* ---- Reading ---- */

typedef struct tessera_checkpoint tessera_checkpoint;

/* The library's version, such as "1.2.3". */
TESSERA_API const char* tessera_version(void);

/* Whether `path` can be read and written here: a path on this machine, s3://,
 * or the URL of a store with an installed plugin. Does not use the network.
 * UNIMPLEMENTED for other URLs, and if a plugin is missing. */
TESSERA_API tessera_error* tessera_check_served(const char* path);

/* Opens the checkpoint at `path`, in any format, and reads the index; `path`
 * may be an s3:// URL. NOT_FOUND if there is none, DATA_LOSS if it is damaged,
 * PERMISSION_DENIED if a pickle needs more than data. `stop` may be null, here
 * and below. */
TESSERA_API tessera_error* tessera_checkpoint_open(const char* path,
                                                   tessera_stop* stop,
                                                   tessera_checkpoint** out);
TESSERA_API void tessera_checkpoint_free(tessera_checkpoint* checkpoint);

/* The contents, as JSON:
 *   {"path", "format": "dcp" | "safetensors" | "pt", "flattened": bool,
 *    "metadata": {key: text}, "warnings": [text],
 *    "tensors": [{"name", "dtype": "float32", "shape": [int],
 *                 "keys": [text or int], "place": [file, offset],
 *                 "chunks": [[[offset], [size]]]}],
 *    "objects": [{"name", "keys"}]}
 * `warnings` name contents that the checkpoint lost, such as weight shapes:
 * show them to the user.
 * `keys` is the position in the nested state dict, empty if it is not recorded;
 * dtypes have PyTorch's names. `place` is where the first chunk is: reading
 * tensors in this order reads each file from beginning to end. */
TESSERA_API tessera_error* tessera_checkpoint_describe(
    const tessera_checkpoint* checkpoint, tessera_bytes** out);

/* A part of a tensor and the memory for it. */
typedef struct tessera_region {
  const char* name;
  const char* dtype; /* in memory, as PyTorch names it; converted */
  size_t num_dims;
  const int64_t* offsets; /* to the first element, in elements */
  const int64_t* sizes;   /* in elements */
  void* data;             /* row-major */
  uint64_t num_bytes;     /* of memory; exactly as many as the sizes need */
} tessera_region;

/* Fills all regions in one pass over the files, with at most `memory_bytes` of
 * memory (0: 256 MiB). If `verify` is not 0, every item that is read whole is
 * compared with the recorded checksum. NOT_FOUND and INVALID_ARGUMENT name
 * every region that does not fit, before anything is read. After another error,
 * the regions hold some of the bytes. */
TESSERA_API tessera_error* tessera_checkpoint_read(
    tessera_checkpoint* checkpoint, const tessera_region* regions,
    size_t num_regions, uint64_t memory_bytes, int verify, tessera_stop* stop);

/* An object that is not a tensor, as a torch.save archive that the library has
 * written again from data: it names only classes on the library's list, and
 * none of these runs code. PERMISSION_DENIED if the object has others. */
TESSERA_API tessera_error* tessera_checkpoint_object(
    tessera_checkpoint* checkpoint, const char* name, tessera_stop* stop,
    tessera_bytes** out);

/* The named tensors that are not stored as dense elements, such as a subclass
 * of torch.Tensor that pickles itself: a JSON list of names.
 * tessera_checkpoint_read refuses them, with the reason. */
TESSERA_API tessera_error* tessera_checkpoint_not_dense(
    tessera_checkpoint* checkpoint, const char* const* names, size_t num_names,
    tessera_stop* stop, tessera_bytes** out);

/* The stored bytes of a tensor's chunk (`chunk` is the index in "chunks"), or
 * of an object (chunk 0): a torch.save archive that anybody may have written.
 * Unpickle it only by rules of your own. UNIMPLEMENTED if the
 * checkpoint has no items. */
TESSERA_API tessera_error* tessera_checkpoint_item(
    tessera_checkpoint* checkpoint, const char* name, size_t chunk,
    tessera_stop* stop, tessera_bytes** out);

/* Whether an object, as torch.save has written it, can be read again with
 * tessera_checkpoint_object: PERMISSION_DENIED or UNIMPLEMENTED that names the
 * class if not. */
TESSERA_API tessera_error* tessera_object_check(const uint8_t* data,
                                                uint64_t size);

/* ---- Writing ----
 *
 * One process, the coordinator, begins the save and asks for a file name for
 * each process; each process writes one file and gives the coordinator the
 * items' places and the digests; the coordinator commits the index. */

typedef struct tessera_save tessera_save;

/* Takes the lock of the directory `path`. tessera_save_commit makes it appear
 * as a checkpoint. ALREADY_EXISTS if there is one and `overwrite` is 0;
 * FAILED_PRECONDITION if another writer is at work, which the message names. */
TESSERA_API tessera_error* tessera_save_begin(const char* path, int overwrite,
                                              tessera_save** out);
/* A name that no file there has, for the data file of the process `rank`. The
 * file is removed unless the save is committed. */
TESSERA_API tessera_error* tessera_save_file_name(tessera_save* save,
                                                  int64_t rank,
                                                  tessera_bytes** out);
/* The same for a file name that the process has chosen. */
TESSERA_API tessera_error* tessera_save_adopt(tessera_save* save,
                                              const char* name);
/* Makes the checkpoint appear, durable, when all files are written. `metadata`
 * is the content of .metadata, which includes `save_id`; `digests` are those of
 * all files. */
TESSERA_API tessera_error* tessera_save_commit(
    tessera_save* save, const char* save_id, const uint8_t* metadata,
    size_t num_metadata_bytes, const char* const* digests, size_t num_digests);
/* Removes the written files, unless they were committed. */
TESSERA_API void tessera_save_free(tessera_save* save);

typedef struct tessera_file tessera_file;

/* The next bytes of a tensor that is not in contiguous memory: fills `dst` with
 * bytes [offset, offset + size) of the row-major payload. Called by one of the
 * library's threads, one call at a time, with increasing offsets. Returns 0, or
 * another number to fail the write. */
typedef int (*tessera_fill)(void* context, uint64_t offset, uint8_t* dst,
                            uint64_t size);

/* Bytes in the file, which the index records. */
typedef struct tessera_range {
  uint64_t offset;
  uint64_t length;
} tessera_range;

/* The data file of one process, laid out item by item. */
TESSERA_API tessera_error* tessera_file_new(const char* path,
                                            tessera_file** out);
/* Adds a tensor, or a part of one, with `sizes`. The elements are at `data`,
 * row-major; if that is null, `fill` provides them. Both must stay valid until
 * the file is written. */
TESSERA_API tessera_error* tessera_file_add_tensor(
    tessera_file* file, const char* dtype, size_t num_dims,
    const int64_t* sizes, const void* data, tessera_fill fill, void* context,
    tessera_range* out);
/* Adds an object with `size` bytes, as torch.save has written it. The bytes are
 * given as for a tensor. */
TESSERA_API tessera_error* tessera_file_add_object(
    tessera_file* file, uint64_t size, const void* data, tessera_fill fill,
    void* context, tessera_range* out);

/* Zero means the default. */
typedef struct tessera_write_options {
  uint64_t memory_bytes; /* at most, for blocks; 256 MiB */
  uint64_t max_rate;     /* bytes a second; no limit */
  int direct;            /* past the page cache: 1 always, 2 never; automatic */
} tessera_write_options;

/* Writes the file under `name` in the directory and syncs it; once. `options`
 * may be null. The digests are for tessera_save_commit. */
TESSERA_API tessera_error* tessera_file_write(
    tessera_file* file, const char* name, const tessera_write_options* options,
    tessera_stop* stop, tessera_bytes** digests);
TESSERA_API void tessera_file_free(tessera_file* file);

/* ---- The steps of a run ----
 *
 * The checkpoints "step-<N>" in a directory, or below a name in an object
 * store, by the rules of fsdp::CheckpointManager. */

/* The newest complete step, as JSON: {"step": int or null, "skipped": [text]},
 * with a line for each newer step, which is incomplete. */
TESSERA_API tessera_error* tessera_newest_step(const char* directory,
                                               tessera_bytes** out);
/* Removes steps before `durable`, which is complete: all but the newest
 * `keep_last` (0: all stay) and the multiples of `keep_every` (0: none), and
 * older ones that a crash left unfinished. Returns a JSON list of lines for
 * people, one for each step that was removed or could not be. */
TESSERA_API tessera_error* tessera_remove_old_steps(const char* directory,
                                                    int64_t durable,
                                                    int64_t keep_last,
                                                    int64_t keep_every,
                                                    tessera_bytes** out);

/* An entry in a safetensors file's metadata. */
typedef struct tessera_pair {
  const char* key;
  const char* value;
} tessera_pair;

/* Writes whole tensors as one file, which appears whole or not at all. `format`
 * is "safetensors" or "pt" (torch.save's); if it is null, the suffix of `path`
 * decides. The offsets of the regions are not read and may be null; `data` is
 * read only. Metadata is for safetensors; without a `format`, "format": "pt" is
 * added if it is missing. ALREADY_EXISTS if there is a file and `overwrite` is
 * 0. */
TESSERA_API tessera_error* tessera_write_file(
    const char* path, const char* format, const tessera_region* tensors,
    size_t num_tensors, const tessera_pair* metadata, size_t num_pairs,
    int overwrite, const tessera_write_options* options, tessera_stop* stop);

#ifdef __cplusplus
}
#endif

#endif /* CAPI_TESSERA_H_ */
