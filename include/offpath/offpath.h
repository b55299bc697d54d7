/* Offpath, the C interface of a host program.
 *
 * A host program connects to an agent and announces memory once. From then on it moves data by storing a few words into
 * its own memory: the agent pulls and pushes, one-sided.
 *
 *     ofp_channel *channel;
 *     ofp_error error;
 *     if (ofp_connect(NULL, NULL, &channel, &error)) { fprintf(stderr, "%s\n", error.message); exit(1); }
 *     ofp_column columns[] = {{.name = "id", .format = "i"}, {.name = "x", .format = "+w:3g"}};
 *     ofp_stream_options options = {.struct_bytes = sizeof options, .rows_max = n};
 *     ofp_stream *stream;
 *     ofp_stream_open_columns(channel, "particles", columns, 2, &options, &stream, &error);
 *     const void *data[] = {id, x};
 *     uint64_t ticket;
 *     ofp_send_columns(stream, data, n, "step0", "rank0", OFP_SEND_WAIT | OFP_SEND_ANNOUNCE, &ticket, &error);
 *     // ... compute on something else ...
 *     ofp_wait_pulled(stream, ticket, OFP_FOREVER, &error);  // id and x are mine again
 *
 * Conventions
 *   - Every call that can fail returns OFP_OK (0) or an ofp_code, and fills `error` if it is not NULL.
 *     Nothing throws or aborts across this interface.
 *   - Times are nanoseconds. An argument `wait_ns` is how long to wait from now: 0 does not wait at all, OFP_FOREVER
 *     waits without end.
 *   - In option structs, 0 means the default that the comment names.
 *   - A struct that begins with `struct_bytes` is zeroed and gets its own size there; only such structs grow.
 *   - Lengths are bytes where the name ends in _bytes, rows otherwise.
 *   - A channel may be used by several threads. A forked child must open its own (OFP_FORKED).
 *   - The library starts no thread on a one-sided link; over TCP it runs one (ofp_channel_info says so).
 *
 * This header includes the rest of the interface: offpath/exchange.h has gauges and exchanges, offpath/tasks.h tasks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef OFFPATH_OFFPATH_H
#define OFFPATH_OFFPATH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OFP_API __attribute__((visibility("default")))

#define OFP_VERSION_MAJOR 0
#define OFP_VERSION_MINOR 1
#define OFP_VERSION_PATCH 0

#define OFP_FOREVER ((int64_t)-1)

typedef enum ofp_code {
  OFP_OK = 0,
  OFP_WOULD_BLOCK = 1, /* no room in the ring, or no credit; nothing was sent, try again */
  OFP_TIMEOUT = 2,     /* the deadline passed; the operation continues */
  OFP_INVALID = 3,
  OFP_NOT_FOUND = 4,
  OFP_EXISTS = 5,
  OFP_SCHEMA = 6, /* the data does not fit the schema */
  OFP_TOO_LARGE = 7,
  OFP_STALE = 8, /* the memory was withdrawn or announced again */
  OFP_UNANNOUNCED = 9,
  OFP_UNREADABLE = 10, /* announced, but no longer there */
  OFP_DENIED = 11,
  OFP_VERSION = 12,
  OFP_PEER_LOST = 13, /* the agent is gone; every lease has ended */
  OFP_PROTOCOL = 14,
  OFP_FORKED = 15,
  OFP_NO_MEMORY = 16,
  OFP_NO_SPACE = 17,
  OFP_IO = 18,
  OFP_UNSUPPORTED = 19,
  OFP_CLOSED = 20,
  OFP_CANCELLED = 21,
  OFP_FUNCTION_FAILED = 22 /* a function of a plug-in returned an error, threw or crashed; the message says which */
} ofp_code;

typedef struct ofp_error {
  int32_t code;
  char message[508]; /* names the field and both values; ends with NUL */
} ofp_error;

typedef struct ofp_channel ofp_channel;
typedef struct ofp_stream ofp_stream;
typedef struct ofp_range ofp_range;     /* application memory the agent may read */
typedef struct ofp_segment ofp_segment; /* memory from ofp_alloc: both sides may write */
typedef struct ofp_frame ofp_frame;     /* an object read from the agent */
typedef struct ofp_listing ofp_listing;
typedef struct ofp_members ofp_members;
typedef struct ofp_resources ofp_resources;
typedef struct ofp_request ofp_request; /* a request to a pool that is under way */
typedef struct ofp_query ofp_query;     /* the answer of a query, read frame by frame */

/* ---- library -------------------------------------------------------------------------------- */

OFP_API const char* ofp_version(void);
OFP_API const char* ofp_code_name(int32_t code);

/* ---- channel -------------------------------------------------------------------------------- */

typedef struct ofp_connect_options {
  uint32_t struct_bytes;       /* sizeof(ofp_connect_options) */
  const char* name;            /* what the agent calls this program; NULL: the program's own name */
  const char* key_file;        /* shared key for the network; NULL: OFFPATH_KEY_FILE */
  const char* tls_ca_file;     /* TLS for TCP if set; NULL: OFFPATH_TLS_CA_FILE */
  int64_t wait_ns;             /* for the connection and handshake; 0: 5 s */
  uint32_t request_ring_slots; /* power of two, 64-byte slots; 0: 4096 */
  uint64_t staging_bytes_max;  /* bound of the staging memory for snapshots, staged links and views; 0: 1 GiB */
  uint32_t force_staging;      /* copy through staging even if direct reads are permitted */
} ofp_connect_options;

/* `address`: "unix:/path", "tcp:", "tls:", "verbs:" or "doca:HOST:PORT"; NULL:
 * OFFPATH_AGENT from the environment, or else the agent at the default address. */
OFP_API int ofp_connect(const char* address, const ofp_connect_options* options, ofp_channel** channel,
                        ofp_error* error);
/* Waits until the agent has released every lease (at most one second), then frees everything. */
OFP_API void ofp_close(ofp_channel* channel);

typedef struct ofp_channel_info {
  uint32_t struct_bytes;
  uint32_t one_sided;    /* the agent reads without this program's help */
  uint32_t staged;       /* the library copies through staging: direct reads are not permitted */
  uint32_t threads;      /* threads the library runs for this channel: 0, or 1 over TCP */
  char link[16];         /* "local", "tcp", "verbs", "doca" */
  char link_reason[240]; /* why this link, and why staged if it is */
  char agent_name[64];
  char agent_version[32];
  uint64_t agent_incarnation;
  int64_t agent_pid;                                         /* 0 where unknown */
  uint64_t memory_bytes_max;                                 /* bound of all frames' memory on the agent */
  uint64_t posted, bytes_posted, pulled, failed, wakes_sent; /* counters of this channel; pulled: the newest ticket */
  uint64_t sleeps;                                           /* how often a wait of this program went to sleep */
} ofp_channel_info;
OFP_API int ofp_channel_info_get(ofp_channel* channel, ofp_channel_info* info, ofp_error* error);

/* A descriptor that becomes readable when something happens on the channel after ofp_arm, or after ofp_tasks_next
 * has returned OFP_WOULD_BLOCK. Poll it, do not read it; then call ofp_poll. It belongs to the channel, and may be
 * polled while other threads wait in calls of this library. */
OFP_API int ofp_event_fd(ofp_channel* channel);
/* Asks to be woken (event fd) when `ticket` of `stream` is pulled, or stored if `stored` is not 0. */
OFP_API int ofp_arm(ofp_stream* stream, uint64_t ticket, int stored, ofp_error* error);
/* Looks at the agent's writes without blocking. Returns OFP_PEER_LOST when the agent is gone. */
OFP_API int ofp_poll(ofp_channel* channel, ofp_error* error);
/* For interpreters. From now on each wait of this thread calls `is_due` before it sleeps and after a signal has ended
 * the sleep, without a lock held. If that returns nonzero, the waiting call returns OFP_CANCELLED; the operation that
 * it waited for continues. NULL ends this. */
OFP_API void ofp_interruptible(int (*is_due)(void* user), void* user);
/* One round trip through the rings. Fills the agent's clock when it saw the request (meaningful on one machine only)
 * and the time when the reply was seen here, both in nanoseconds of CLOCK_MONOTONIC. */
OFP_API int ofp_probe(ofp_channel* channel, int64_t wait_ns, int64_t* seen_ns, int64_t* returned_ns, ofp_error* error);

/* ---- memory --------------------------------------------------------------------------------- */

/* Announces memory where it lies. The agent may read it, never write it, until ofp_range_retire. */
OFP_API int ofp_range_announce(ofp_channel* channel, const void* base, uint64_t length_bytes, ofp_range** range,
                               ofp_error* error);
/* The memory moved or changed its size (realloc): same handle, new place. Sends that named the old place
 * and have not been pulled fail with OFP_STALE. */
OFP_API int ofp_range_reannounce(ofp_range* range, const void* base, uint64_t length_bytes, ofp_error* error);
/* Waits until no posted send or task uses it, then withdraws it. The handle is freed whatever the result. */
OFP_API int ofp_range_retire(ofp_range* range, int64_t wait_ns, ofp_error* error);

/* Memory the agent may read and write. Zeroed, page aligned. */
OFP_API int ofp_alloc(ofp_channel* channel, uint64_t length_bytes, ofp_segment** segment, ofp_error* error);
OFP_API void* ofp_segment_data(ofp_segment* segment);
OFP_API uint64_t ofp_segment_bytes(const ofp_segment* segment);
OFP_API void ofp_free(ofp_segment* segment);

/* ---- streams -------------------------------------------------------------------------------- */

struct ArrowSchema; /* Arrow C data interface */
struct ArrowArray;
struct ArrowArrayStream;

typedef struct ofp_stream_options {
  uint32_t struct_bytes;
  const char* pool;        /* where frames go: "local:/name"; NULL: "local:/" + stream name */
  const char* destination; /* "native" "arrays" "record-batch" "ipc" "ipc-page" "c-abi" "agent-serialise"
                              "serialised" (one buffer that is an Arrow IPC stream already); NULL: "ipc-page" */
  uint64_t rows_max;       /* the largest batch; sends beyond it fail. ofp_stream_grow raises it */
  uint64_t keep;           /* frames the pool keeps, the oldest leave; 0: all */
  uint32_t ranks, rank;    /* of a parallel program, for ofp_step_end; 0 and 0: alone */
  const char* compression; /* of frames, by the agent, once it has pulled them: "none" "lz4" "zstd"; for destinations
                              "ipc" and "ipc-page". Arrow's readers decompress; NULL: "none" */
} ofp_stream_options;

typedef struct ofp_column {
  const char* name;
  const char* format;    /* Arrow C data interface: "i" int32, "l" int64, "f" "g" floats, "+w:3g" three doubles a row */
  uint32_t stride_bytes; /* from one row's value to the next; 0: dense. {x,y,z} of x[n][3] as three columns: 24.
                            Booleans ("b"): bits if 0, a byte each otherwise */
} ofp_column;

/* Fixed-width columns without nulls, as simulations have them. */
OFP_API int ofp_stream_open_columns(ofp_channel* channel, const char* name, const ofp_column* columns,
                                    uint32_t columns_count, const ofp_stream_options* options, ofp_stream** stream,
                                    ofp_error* error);
/* Any schema (the struct schema of a record batch). Not consumed; the caller releases it. NULL for destinations
 * "native" and "serialised": one column of bytes, whose rows are bytes. */
OFP_API int ofp_stream_open(ofp_channel* channel, const char* name, const struct ArrowSchema* schema,
                            const ofp_stream_options* options, ofp_stream** stream, ofp_error* error);
/* Later batches may have `rows_max` rows. Waits at most `wait_ns` until the agent has agreed; batches under way are not
 * affected, and a smaller number than before has no effect. Other threads may send meanwhile. OFP_TOO_LARGE: a column
 * would have more than 2^43 bytes. */
OFP_API int ofp_stream_grow(ofp_stream* stream, uint64_t rows_max, int64_t wait_ns, ofp_error* error);
/* Ends the stream; frames stay in their pool. Waits at most `wait_ns` for the end of its leases. The handle is freed
 * whatever the result. */
OFP_API int ofp_stream_close(ofp_stream* stream, int64_t wait_ns, ofp_error* error);

enum {
  OFP_SEND_WAIT = 1,     /* wait for ring space and credit instead of OFP_WOULD_BLOCK; ofp_send_wait says how long */
  OFP_SEND_SNAPSHOT = 2, /* copy into staging now: the arrays are the program's again at return */
  OFP_SEND_ANNOUNCE = 4  /* announce memory that is not announced yet (once; found again by address) */
};

/* Posts one batch. `data[i]` points at the first value of column i; `rows` values each. Returns immediately; until
 * `ticket` is pulled the memory must neither change nor be freed. Keys of at most 65,536 bytes each. */
OFP_API int ofp_send_columns(ofp_stream* stream, const void* const* data, uint64_t rows, const char* row_key,
                             const char* column_key, uint32_t flags, uint64_t* ticket, ofp_error* error);
/* The same with a stride for each column (0: dense) instead of those the stream was opened with. */
OFP_API int ofp_send_strided(ofp_stream* stream, const void* const* data, const uint32_t* stride_bytes, uint64_t rows,
                             const char* row_key, const char* column_key, uint32_t flags, uint64_t* ticket,
                             ofp_error* error);
/* Posts one batch of any schema. Not consumed; keep it alive until pulled. This call converts columns of string_view,
 * binary_view, list_view, large_list_view and run_end_encoded, in staging memory, to large_string, large_binary, list,
 * large_list and the type of the values, which are stored. OFP_SCHEMA names column and row of a view beyond its
 * buffers; OFP_TOO_LARGE: they take more than `staging_bytes_max`. */
OFP_API int ofp_send(ofp_stream* stream, const struct ArrowArray* batch, const char* row_key, const char* column_key,
                     uint32_t flags, uint64_t* ticket, ofp_error* error);

/* From now on, sends and moves of this thread with OFP_SEND_WAIT wait this long; then they return OFP_TIMEOUT, which
 * says what was missing, and have sent nothing. OFP_FOREVER at first; a warning follows after a second. */
OFP_API void ofp_send_wait(int64_t wait_ns);

/* `pulled`: the source memory is the program's again. `stored`: the agent has taken responsibility. When an
 * operation has failed, both return its error once it is over. A warning follows after a second if what is to be
 * stored waits for members of its pool. */
OFP_API int ofp_wait_pulled(ofp_stream* stream, uint64_t ticket, int64_t wait_ns, ofp_error* error);
OFP_API int ofp_wait_stored(ofp_stream* stream, uint64_t ticket, int64_t wait_ns, ofp_error* error);
/* The newest tickets reached; two loads. */
OFP_API uint64_t ofp_pulled(const ofp_stream* stream);
OFP_API uint64_t ofp_stored(const ofp_stream* stream);
/* Bytes that may be sent before a send would block. */
OFP_API uint64_t ofp_credit_bytes(const ofp_stream* stream);

/* This rank has posted everything of step `row_key`. Readers see the step's frames when all ranks of the stream's
 * pool have called this. */
OFP_API int ofp_step_end(ofp_stream* stream, const char* row_key, uint64_t* ticket, ofp_error* error);

/* ---- plain movement ------------------------------------------------------------------------- */

typedef struct ofp_piece {
  const void* source; /* announced memory, or a segment's */
  uint64_t length_bytes;
  uint64_t target_offset; /* in the object */
} ofp_piece;

enum {
  OFP_MOVE_CREATE = 0, /* a new object of `object_bytes`; bytes no piece covers are zero */
  OFP_MOVE_UPDATE = 1  /* an object that OFP_MOVE_CREATE made, in place; other objects never change */
};

/* Gathers pieces into one object of a pool. `stream` is an open stream of destination "native", whose pool, credit
 * and completion line are used. */
OFP_API int ofp_move(ofp_stream* stream, const ofp_piece* pieces, uint32_t pieces_count, uint64_t object_bytes,
                     const char* row_key, const char* column_key, uint32_t mode, uint32_t flags, uint64_t* ticket,
                     ofp_error* error);

/* ---- the agent's group ---------------------------------------------------------------------- */

enum { OFP_MEMBER_ALIVE = 0, OFP_MEMBER_SUSPECT = 1, OFP_MEMBER_LEFT = 2, OFP_MEMBER_DEAD = 3 };

typedef struct ofp_member {
  const char *name, *host;             /* host: the machine's name */
  const char *address, *http, *flight; /* where it listens for agents, HTTP and Flight clients; "": it does not */
  int state;                           /* as the agent sees it */
} ofp_member;
/* All members that the agent knows, itself included, by name. */
OFP_API int ofp_group_members(ofp_channel* channel, int64_t wait_ns, ofp_members** members, ofp_error* error);
OFP_API uint64_t ofp_members_count(const ofp_members* members);
OFP_API int ofp_members_entry(const ofp_members* members, uint64_t index, ofp_member* member);
/* "host" or "dpu", and the rack, "" if it is unknown. NULL: there is no such member. */
OFP_API const char* ofp_members_role(const ofp_members* members, uint64_t index);
OFP_API const char* ofp_members_rack(const ofp_members* members, uint64_t index);
OFP_API void ofp_members_free(ofp_members* members);

/* The directory of the group: what its agents have, by path. /members/NAME, /racks/RACK/NAME, /roles/ROLE/NAME,
 * /exchanges/NAME, /functions/PLUG-IN/NAME, /pools/NAME and /sift/NAME. */
typedef struct ofp_resource {
  const char* path;
  const char* about;  /* options or properties, as name=value&...; of a function its description */
  const char* member; /* the agent that has it */
} ofp_resource;
/* Resources below `path` (NULL: all) that `member` has, by path. NULL: the agent that is asked. Only it lists /members,
 * /racks and /roles. `seen`: 0, or the version of an earlier list; then the call waits until there is another one. If
 * nothing changes within `wait_ns`, the list is empty and has version `seen`. */
OFP_API int ofp_resources_list(ofp_channel* channel, const char* member, const char* path, uint64_t seen,
                               int64_t wait_ns, ofp_resources** resources, ofp_error* error);
OFP_API uint64_t ofp_resources_version(const ofp_resources* resources);
OFP_API uint64_t ofp_resources_count(const ofp_resources* resources);
OFP_API int ofp_resources_entry(const ofp_resources* resources, uint64_t index, ofp_resource* resource);
OFP_API void ofp_resources_free(ofp_resources* resources);

/* ---- reading back --------------------------------------------------------------------------- */

/* The object's bytes, read-only, without a copy on one machine. Waits until it is there. */
OFP_API int ofp_pool_get(ofp_channel* channel, const char* pool, const char* row_key, const char* column_key,
                         int64_t wait_ns, ofp_frame** frame, ofp_error* error);
OFP_API const void* ofp_frame_data(const ofp_frame* frame);
OFP_API uint64_t ofp_frame_bytes(const ofp_frame* frame);
OFP_API uint64_t ofp_frame_rows(const ofp_frame* frame); /* 0 for plain bytes */
OFP_API int ofp_frame_is_arrow(const ofp_frame* frame);  /* the bytes are an Arrow IPC stream */
OFP_API int ofp_frame_mapped(const ofp_frame* frame);    /* the agent's own pages */
OFP_API void ofp_frame_release(ofp_frame* frame);

typedef struct ofp_entry {
  const char *row_key, *column_key;
  uint64_t bytes, rows, sequence; /* rows: 0 for plain bytes; sequence: order of storing */
  int is_arrow;                   /* the object is an Arrow IPC stream */
} ofp_entry;
/* Objects whose keys match the globs (NULL: all), in order of storing. */
OFP_API int ofp_pool_list(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                          int64_t wait_ns, ofp_listing** listing, ofp_error* error);
OFP_API uint64_t ofp_listing_count(const ofp_listing* listing);
OFP_API int ofp_listing_entry(const ofp_listing* listing, uint64_t index, ofp_entry* entry);
/* The member that answers for the entry in queries: the first living owner of its row. "": the agent that was asked,
 * if the pool lies at it alone. NULL: there is no such entry. */
OFP_API const char* ofp_listing_member(const ofp_listing* listing, uint64_t index);
/* Identifies the pool's members then, for queries of one member's part; 0: the agent that was asked, alone. */
OFP_API uint64_t ofp_listing_view(const ofp_listing* listing);
OFP_API void ofp_listing_free(ofp_listing* listing);

/* Removes matching objects; `dropped` gets their number. */
OFP_API int ofp_pool_drop(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                          int64_t wait_ns, uint64_t* dropped, ofp_error* error);
/* Writes the pool's frames, in order of storing, to `fd` as one Arrow IPC stream. On one machine the agent
 * does it through a duplicate of the descriptor (this program's rights, the agent's time); over TCP, and into
 * pipes, sockets, devices and files of FUSE or a network, this call's own thread does, as write(2) would.
 * `written_bytes` may be NULL. */
OFP_API int ofp_pool_write(ofp_channel* channel, const char* pool, int fd, int64_t wait_ns, uint64_t* written_bytes,
                           ofp_error* error);

/* Sift pools ("sift:/tracks?key=id&stages=2&fanout=16"; docs/guides/sift.md) split streams by identifier and keep
 * them as tracks, ordered by identifier and time step, in elements on all members. The low bits of an identifier
 * give its element. ofp_sift_elements with options in the name makes the pool, also through an agent that takes no rows
 * of it; 0 elements: it waits for members. */
OFP_API int ofp_sift_elements(ofp_channel* channel, const char* pool, int64_t wait_ns, uint32_t* elements,
                              ofp_error* error);
/* Returns when everything stored before is in its tracks. OFP_TIMEOUT: not in time. OFP_PEER_LOST: a member of the
 * pool is away, or was lost meanwhile. */
OFP_API int ofp_sift_flush(ofp_channel* channel, const char* pool, int64_t wait_ns, ofp_error* error);
/* The tracks of `count` ascending identifiers (at most 512) of one element, whatever `element` is; or all tracks of
 * `element` if `identifiers` is NULL. Steps are from `first_step` to `last_step`. The result is an Arrow IPC stream
 * of one batch: the step, then the pool's columns. OFP_NOT_FOUND: there are none. */
OFP_API int ofp_sift_tracks(ofp_channel* channel, const char* pool, uint32_t element, const uint64_t* identifiers,
                            uint32_t count, int64_t first_step, int64_t last_step, int64_t wait_ns, ofp_frame** frame,
                            ofp_error* error);
/* The progress of a write of tracks; `members_over` of its members have written their part. */
typedef struct ofp_sift_progress {
  uint32_t over; /* 1: the files are there */
  uint32_t members, members_over;
  uint32_t zero;
  uint64_t files, rows, bytes;
} ofp_sift_progress;
/* Has all members write the tracks they keep to `directory`, an absolute path where all of them have it, as Parquet
 * files part-MEMBER-NNNN.parquet; no row comes to this program. Each agent writes for its own user alone: the directory
 * is made, or has to belong to that user, and to be empty but for hidden files. The files have their names when all
 * members have written theirs. `wait_ns` holds for the whole write; -1: no limit. Returns when it has begun; `number`
 * is for the calls below. */
OFP_API int ofp_sift_write(ofp_channel* channel, const char* pool, const char* directory, int64_t wait_ns,
                           uint64_t* number, ofp_error* error);
/* Returns when the write is over, or after `wait_ns`; -1: when it is over. The write's failure names the member;
 * nothing is left of it then. OFP_NOT_FOUND also means that there are no tracks. OFP_TIMEOUT: the write, or a member,
 * had not ended in time. OFP_WOULD_BLOCK: the agent answers slowly; ask again. May be called again after the end. */
OFP_API int ofp_sift_written(ofp_channel* channel, uint64_t number, int64_t wait_ns, ofp_sift_progress* progress,
                             ofp_error* error);
/* Ends the write if it is not over, and has the agent forget it. */
OFP_API int ofp_sift_write_cancel(ofp_channel* channel, uint64_t number, ofp_error* error);

/* Calls a function of a plug-in of the agent (plugin.h, docs/guides/plugins.md) where the object lies, whichever member
 * of the group that is. Its inputs are the object, or all objects of the row by column where `column_key` is NULL or
 * empty; `arguments`, at most 32 KiB, are passed unchanged. Without result keys (both NULL) its one output comes back
 * in `frame`, which is NULL if it made none. Otherwise outputs are put into the pool, and `frame`, if given, gets NULL.
 * Their keys are `result_row` (NULL: `row_key`) and `result_column`, followed by "." and the output's name if there are
 * several; or the outputs' names alone where `result_column` is NULL or empty.
 * `wait_ns` is the time that the objects may take to appear and the function to run, together. 0: the objects must
 * exist, and the function has the plug-in's time; -1: the objects may appear at any time. OFP_FUNCTION_FAILED with the
 * function's message, and the member's name, if it failed, threw or crashed; OFP_TIMEOUT if it was stopped;
 * OFP_NOT_FOUND without such a pool, object (if `wait_ns` is 0), plug-in or function. A member that is lost meanwhile
 * may have called it; then it is called again. */
OFP_API int ofp_pool_compute(ofp_channel* channel, const char* pool, const char* row_key, const char* column_key,
                             const char* plugin, const char* function, const void* arguments, uint64_t arguments_bytes,
                             const char* result_row, const char* result_column, int64_t wait_ns, ofp_frame** frame,
                             ofp_error* error);

/* ---- queries ---------------------------------------------------------------------------------
 *
 * Agents compute which rows of a pool's objects a program gets, which columns of them, or figures over them.
 *
 *     const char *columns[] = {"id", "energy=0.5 * m * v * v"};
 *     ofp_query_text text = {.struct_bytes = sizeof text, .filter = "0.25 <= x < 0.75 and type in (1, 3)",
 *                            .columns = columns, .columns_count = 2};
 *     ofp_query_make(&text, &query, &query_bytes, &error);
 *     ofp_pool_query(channel, "local:/particles", "step*", NULL, query, query_bytes, OFP_FOREVER, &answer, &error);
 *     while (ofp_query_next(answer, &frame, &error) == OFP_OK && frame) {
 *       // ... ofp_frame_data: an Arrow IPC stream of ids and energies
 *       ofp_frame_release(frame);
 *     }
 *     ofp_query_free(answer);
 *     ofp_query_bytes_free(query);  // or ask again: it names no pool
 *
 * The text is that of `offpath pool query` and of Python; docs/guides/pools.md has all of the language.
 */

enum {
  OFP_QUERY_PARTIAL = 1,   /* leave out rows that lost members had; otherwise lost rows make the query fail */
  OFP_QUERY_ARROW_ONLY = 2 /* leave out objects that are not Arrow; otherwise they make the query fail */
};

typedef struct ofp_query_text {
  uint32_t struct_bytes;
  uint32_t flags;
  const char* filter;            /* rows for which it holds; NULL or empty: all */
  const char* const* columns;    /* of the answer: "NAME" or "NAME=EXPRESSION"; NULL: all */
  const char* const* aggregates; /* instead of columns: "NAME=FUNCTION(EXPRESSION)" with sum, min, max, mean or count,
                                    or "NAME=count" for the number of rows */
  uint32_t columns_count, aggregates_count; /* at most 4096 each */
  const char* member; /* rows for which this member answers (ofp_listing_member); NULL: all rows */
  uint64_t view;      /* with `member`: ofp_listing_view. If members have changed since, the query is OFP_STALE */
} ofp_query_text;
/* The bytes of a query, for any number of calls of ofp_pool_query. Needs no channel. OFP_INVALID names the filter,
 * column or aggregate, and the character that is not understood. OFP_TOO_LARGE: expressions are nested deeper than 48
 * calls, or have more than 8192 columns, values and calls. An agent refuses a column that is not there (OFP_NOT_FOUND)
 * and types that do not go together (OFP_SCHEMA, OFP_UNSUPPORTED), and names both sides. */
OFP_API int ofp_query_make(const ofp_query_text* text, void** query, uint64_t* query_bytes, ofp_error* error);
OFP_API void ofp_query_bytes_free(void* query);

/* Queries the objects whose keys match the globs (NULL: all), in order of storing. `query` is of ofp_query_make.
 * Returns when a part of the answer is there, or after `wait_ns`, which holds for the whole answer. */
OFP_API int ofp_pool_query(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                           const void* query, uint64_t query_bytes, int64_t wait_ns, ofp_query** answer,
                           ofp_error* error);
/* The next frame, an Arrow IPC stream like those of ofp_pool_get; NULL after the last one. The agent computes
 * further frames as they are requested. Frames outlive the answer. */
OFP_API int ofp_query_next(ofp_query* answer, ofp_frame** frame, ofp_error* error);
OFP_API void ofp_query_free(ofp_query* answer); /* also before its end */

/* ---- requests under way ----------------------------------------------------------------------
 *
 * Requests to pools without waiting. Each call here takes the arguments of the waiting call above; `wait_ns` is how
 * long the whole request may take. It returns immediately, and the request is posted now or when the ring has room. Any
 * number of requests may be under way, in no particular order. Puts are sends, which also return immediately (ofp_send,
 * ofp_wait_stored).
 *
 *     ofp_request *listed, *wanted;
 *     ofp_pool_list_start(channel, "local:/particles", "step*", NULL, 1000000000, &listed, &error);
 *     ofp_pool_want(channel, "local:/particles", "step7", "rank0", OFP_FOREVER, &wanted, &error);
 *     // ... compute on something else ...
 *     if (ofp_request_wait(listed, OFP_FOREVER, &error) == OFP_OK) ofp_request_listing(listed, &listing, &error);
 *     ofp_request_free(listed);
 *
 * A handle is used by one thread at a time. The library has no thread that makes progress: answers that need another
 * request (long listings, pushed frames) get it while this program is in ofp_request_wait, ofp_request_next or
 * ofp_poll, or starts another request.
 */

/* As ofp_pool_get, for an object that need not exist when it is called. */
OFP_API int ofp_pool_want(ofp_channel* channel, const char* pool, const char* row_key, const char* column_key,
                          int64_t wait_ns, ofp_request** request, ofp_error* error);
OFP_API int ofp_pool_list_start(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                                int64_t wait_ns, ofp_request** request, ofp_error* error);
OFP_API int ofp_pool_drop_start(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                                int64_t wait_ns, ofp_request** request, ofp_error* error);
/* As ofp_resources_list. One that waits for another version is how a program watches the directory. */
OFP_API int ofp_resources_start(ofp_channel* channel, const char* member, const char* path, uint64_t seen,
                                int64_t wait_ns, ofp_request** request, ofp_error* error);
/* `query` may be freed after the call. */
OFP_API int ofp_pool_query_start(ofp_channel* channel, const char* pool, const char* row_glob, const char* column_glob,
                                 const void* query, uint64_t query_bytes, int64_t wait_ns, ofp_request** request,
                                 ofp_error* error);
/* At most one at a time for each answer. Freeing it before its end ends the answer; OFP_CLOSED: the answer has
 * ended. */
OFP_API int ofp_query_next_start(ofp_query* answer, ofp_request** request, ofp_error* error);
OFP_API int ofp_pool_compute_start(ofp_channel* channel, const char* pool, const char* row_key, const char* column_key,
                                   const char* plugin, const char* function, const void* arguments,
                                   uint64_t arguments_bytes, const char* result_row, const char* result_column,
                                   int64_t wait_ns, ofp_request** request, ofp_error* error);

/* OFP_OK: it has succeeded, and its result is there. OFP_WOULD_BLOCK: it continues (after `wait_ns`; 0 only looks).
 * Other codes are its failure: OFP_TIMEOUT after its own time, with what is missing; OFP_PEER_LOST when the agent is
 * gone. May be called again. */
OFP_API int ofp_request_wait(ofp_request* request, int64_t wait_ns, ofp_error* error);
/* The result after the end, as the waiting call returns it; before, or after a failure, the code of
 * ofp_request_wait. OFP_INVALID: the request has another kind of result. Frames and answers are returned once (then
 * OFP_CLOSED) and outlive the request. */
OFP_API int ofp_request_frame(ofp_request* request, ofp_frame** frame,
                              ofp_error* error); /* want, compute, query_next; may be NULL for these two */
OFP_API int ofp_request_listing(ofp_request* request, ofp_listing** listing, ofp_error* error);
OFP_API int ofp_request_resources(ofp_request* request, ofp_resources** resources, ofp_error* error);
OFP_API int ofp_request_dropped(ofp_request* request, uint64_t* dropped, ofp_error* error);
OFP_API int ofp_request_query(ofp_request* request, ofp_query** answer, ofp_error* error);
/* Calls `callback` once, after any end of the request, in a thread of this program that is in ofp_poll (after which
 * the descriptor of ofp_event_fd becomes readable for the next one), ofp_request_wait, ofp_request_next or
 * ofp_close; or here, if the request has ended already. The callback may free the request and start others. */
OFP_API int ofp_request_on_end(ofp_request* request, void (*callback)(void* user, ofp_request* request), void* user,
                               ofp_error* error);
/* A request of the channel that has ended and has no callback, for a thread that dispatches results. The same one is
 * returned until it was waited for or freed. OFP_WOULD_BLOCK: none has ended within `wait_ns`. OFP_NOT_FOUND: none
 * is under way. */
OFP_API int ofp_request_next(ofp_channel* channel, int64_t wait_ns, ofp_request** request, ofp_error* error);
/* Before its end, the request is cancelled: the agent is told, later results are discarded, and no callback is
 * called. A drop that the agent has already seen takes effect, and a function may have put its outputs. */
OFP_API void ofp_request_free(ofp_request* request);

#ifdef __cplusplus
}
#endif

#include <offpath/exchange.h>
#include <offpath/tasks.h>

#endif
