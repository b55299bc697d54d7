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
  OFP_TIMEOUT = 2,     /* the deadline passed; the operation goes on */
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
typedef struct ofp_request ofp_request;   /* a request to a pool that is under way */
typedef struct ofp_gauges ofp_gauges;     /* values of the program that the agent samples */
typedef struct ofp_query ofp_query;       /* the answer of a query, read frame by frame */
typedef struct ofp_exchange ofp_exchange; /* this program's part in an exchange of agents */
typedef struct ofp_view ofp_view;         /* the state of an exchange's members after one round */

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
 * OFFPATH_AGENT from the environment, else the agent that listens where agents do by default. */
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
 * it waited for goes on. NULL ends this. */
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
  uint64_t rows_max;       /* the largest batch; sends beyond it fail */
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
/* Ends the stream; frames stay in their pool. Waits at most `wait_ns` for the end of its leases. The handle is freed
 * whatever the result. */
OFP_API int ofp_stream_close(ofp_stream* stream, int64_t wait_ns, ofp_error* error);

enum {
  OFP_SEND_WAIT = 1,     /* wait for ring space and credit instead of OFP_WOULD_BLOCK; ofp_send_wait says how long */
  OFP_SEND_SNAPSHOT = 2, /* copy into staging now: the arrays are the program's again at return */
  OFP_SEND_ANNOUNCE = 4  /* announce memory that is not announced yet (once; found again by address) */
};

/* Posts one batch. `data[i]` points at the first value of column i; `rows` values each. Returns at once;
 * until `ticket` is pulled the memory must neither change nor be freed. Keys of at most 65,536 bytes each. */
OFP_API int ofp_send_columns(ofp_stream* stream, const void* const* data, uint64_t rows, const char* row_key,
                             const char* column_key, uint32_t flags, uint64_t* ticket, ofp_error* error);
/* The same with a stride for each column (0: dense) instead of those the stream was opened with. */
OFP_API int ofp_send_strided(ofp_stream* stream, const void* const* data, const uint32_t* stride_bytes, uint64_t rows,
                             const char* row_key, const char* column_key, uint32_t flags, uint64_t* ticket,
                             ofp_error* error);
/* Posts one batch of any schema. Not consumed; keep it alive until pulled. This call lays out columns of string_view,
 * binary_view, list_view, large_list_view and run_end_encoded anew, in staging memory: as large_string, large_binary,
 * list, large_list and the type of the values, which are stored. OFP_SCHEMA names column and row of a view beyond its
 * buffers; OFP_TOO_LARGE: they take more than `staging_bytes_max`. */
OFP_API int ofp_send(ofp_stream* stream, const struct ArrowArray* batch, const char* row_key, const char* column_key,
                     uint32_t flags, uint64_t* ticket, ofp_error* error);

/* How long sends and moves of this thread wait with OFP_SEND_WAIT from now on: then they return OFP_TIMEOUT, which
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
/* How far a write of tracks is; `members_over` of its members have written their part. */
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
 * nothing is left of it then. OFP_NOT_FOUND, too: there are no tracks. OFP_TIMEOUT: the write, or a member, had not
 * ended in time. OFP_WOULD_BLOCK: the agent answers slowly; ask again. The end can be asked for again. */
OFP_API int ofp_sift_written(ofp_channel* channel, uint64_t number, int64_t wait_ns, ofp_sift_progress* progress,
                             ofp_error* error);
/* Ends the write if it is not over, and has the agent forget it. */
OFP_API int ofp_sift_write_cancel(ofp_channel* channel, uint64_t number, ofp_error* error);

/* Calls a function of a plug-in of the agent (plugin.h, docs/guides/plugins.md) where the object lies, whichever member
 * of the group that is. Its inputs are the object, or all objects of the row by column where `column_key` is NULL or
 * empty; `arguments`, at most 32 KiB, come as they are. Without result keys (both NULL) its one output comes back in
 * `frame`, which is NULL if it made none. Otherwise outputs are put into the pool and `frame` is NULL, if there is one:
 * under `result_row` (NULL: `row_key`) and `result_column`, with "." and the output's name behind it if there are
 * several, or under the outputs' names alone where `result_column` is NULL or empty.
 * `wait_ns` is how long objects may take to come and the function to run, together. 0: the objects have to be there,
 * and the function has the plug-in's time; -1: they may come whenever they do. OFP_FUNCTION_FAILED with the function's
 * message, and the member's name, if it failed, threw or crashed; OFP_TIMEOUT if it was stopped; OFP_NOT_FOUND without
 * such a pool, object (if `wait_ns` is 0), plug-in or function. A member that is lost meanwhile may have called it;
 * then it is called once more. */
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
 * long the whole request may take. It returns at once, and the request is posted now or when the ring has room. Any
 * number of requests may be under way, without an order among them. Puts are sends, which return at once as well
 * (ofp_send, ofp_wait_stored).
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

/* ---- gauges --------------------------------------------------------------------------------- */

/* Values that the agent reads from this program's memory (docs/guides/monitoring.md). A change costs the program one
 * store, and reading costs it nothing. The agent's metrics and exchanges contain them. */
typedef struct ofp_gauge {
  const char* name;        /* rays_traced, or with labels: rays_traced{kind="shadow"} */
  const char* type;        /* "u64" (NULL), "i64", "f64" */
  const char* kind;        /* "gauge" (NULL), "counter" */
  const char* unit;        /* "bytes", "seconds", …; NULL: a number of things */
  const char* description; /* NULL: none */
} ofp_gauge;
/* `name` is the name of the whole set. At most 4096 gauges; none has a value at first. */
OFP_API int ofp_gauges_open(ofp_channel* channel, const char* name, const ofp_gauge* gauges_list, uint32_t count,
                            ofp_gauges** gauges, ofp_error* error);
/* Where the program stores a gauge's value, as ofp_gauge_u64 and the others do. From this call on the gauge has a
 * value, initially 0. NULL: there is no such gauge. Valid until ofp_gauges_close or ofp_close. */
OFP_API volatile uint64_t* ofp_gauge_slot(ofp_gauges* gauges, uint32_t index);
/* The gauge has no value until ofp_gauge_slot is called again. */
OFP_API void ofp_gauge_clear(ofp_gauges* gauges, uint32_t index);
static inline void ofp_gauge_u64(volatile uint64_t* slot, uint64_t value) { *slot = value; }
static inline void ofp_gauge_i64(volatile uint64_t* slot, int64_t value) { *slot = (uint64_t)value; }
static inline void ofp_gauge_f64(volatile uint64_t* slot, double value) {
  union {
    double real;
    uint64_t bits;
  } both;
  both.real = value;
  *slot = both.bits;
}
/* Writes all values at once, so that no sample mixes old and new ones. `present` says which of them exist (NULL:
 * all). `read_ns` is when they were read (CLOCK_REALTIME), `cpu_ns` the processor time spent so far (0: unknown).
 * One thread at a time. */
OFP_API int ofp_gauges_write(ofp_gauges* gauges, const uint64_t* values, const uint8_t* present, int64_t read_ns,
                             uint64_t cpu_ns, ofp_error* error);
/* Call it before ofp_close. */
OFP_API void ofp_gauges_close(ofp_gauges* gauges);
/* ---- exchange --------------------------------------------------------------------------------
 *
 * Agents exchange records that their hosts publish, in rounds. Every round ends by its deadline with a view of all
 * members' records that have arrived (docs/guides/monitoring.md; the agents' configuration names the members).
 * Publishing copies a record into memory of this program, which the agent pulls; views are pushed into memory of this
 * program.
 *
 *     ofp_exchange *exchange;
 *     ofp_exchange_options options = {.struct_bytes = sizeof options, .publish = 1};
 *     ofp_exchange_open(channel, "load", &options, &exchange, &error);
 *     ofp_exchange_publish(exchange, &load, sizeof load, &error);
 *     ofp_view *view;
 *     ofp_exchange_view(exchange, 1000000000, &view, &error);    // newer than any that this program has received
 */

typedef struct ofp_field {
  const char* name;
  char type; /* 'u' uint64_t, 'i' int64_t, 'f' double: 8 bytes each, in this order. Presence bits may follow, a uint64_t
                for each 64 fields. A NaN counts as absent */
  const char* unit; /* "watts", "bytes"; NULL: none */
} ofp_field;

typedef struct ofp_exchange_options {
  uint32_t struct_bytes;
  uint32_t publish;        /* this program publishes the records of this agent's host; at most one program does */
  const ofp_field* fields; /* the fields of a record; NULL: as configured. A difference is OFP_SCHEMA */
  uint32_t fields_count;
  uint32_t zero;
  uint64_t record_bytes_max; /* of a record of this program; 0: as configured */
  /* The largest view with its records, which are left out if they do not fit; 0: room for all, at most 1 GiB */
  uint64_t view_bytes_max;
} ofp_exchange_options;

OFP_API int ofp_exchange_open(ofp_channel* channel, const char* name, const ofp_exchange_options* options,
                              ofp_exchange** exchange, ofp_error* error);
/* Views stay valid. Grants that this program requested are withdrawn. */
OFP_API void ofp_exchange_close(ofp_exchange* exchange);

typedef struct ofp_exchange_info {
  uint32_t struct_bytes;
  uint32_t members, self; /* number of members, numbered as in all agents' configurations; the number of this agent */
  uint32_t fields, reductions;
  uint32_t has_grants;
  uint64_t record_bytes_max;
  int64_t interval_ns, deadline_ns;
  uint64_t grant_total; /* UINT64_MAX: any amount */
  char topology[64];
} ofp_exchange_info;
OFP_API int ofp_exchange_info_get(ofp_exchange* exchange, ofp_exchange_info* info, ofp_error* error);
/* NULL beyond the last one. Valid until the members change, which only those of a whole group do. */
OFP_API const char* ofp_exchange_member(ofp_exchange* exchange, uint32_t member);
OFP_API int ofp_exchange_field(ofp_exchange* exchange, uint32_t index, ofp_field* field);
OFP_API const char* ofp_exchange_reduction(ofp_exchange* exchange, uint32_t index); /* as configured: "sum(power)" */

/* Replaces the newest record: a copy into memory of this program and a few stores. Never waits. */
OFP_API int ofp_exchange_publish(ofp_exchange* exchange, const void* record, uint64_t record_bytes, ofp_error* error);

/* The newest view that this program has not received. Looks at this program's memory, then waits at most `wait_ns`
 * (0: OFP_WOULD_BLOCK; otherwise OFP_TIMEOUT). One thread at a time for each exchange. */
OFP_API int ofp_exchange_view(ofp_exchange* exchange, int64_t wait_ns, ofp_view** view, ofp_error* error);
OFP_API void ofp_view_free(ofp_view* view);

typedef struct ofp_view_info {
  uint32_t struct_bytes;
  uint32_t present, expected; /* members whose record of this round has arrived, and all members */
  uint32_t whole;             /* the view covers all members; otherwise this agent's part of the tree */
  uint32_t leader;            /* the member that decides, as far as this agent knows */
  uint32_t is_leader;         /* this agent leads */
  uint32_t entries, figures;
  uint32_t cut;            /* records were left out: view_bytes_max */
  uint32_t figure_members; /* members that the figures cover */
  uint64_t number, epoch;
  int64_t took_ns; /* from the beginning of the round to this view */
  uint64_t tree;   /* members' numbers are valid while this does not change */
} ofp_view_info;
OFP_API int ofp_view_info_get(const ofp_view* view, ofp_view_info* info, ofp_error* error);

typedef struct ofp_view_entry {
  uint32_t member;
  uint32_t present;   /* the record is of this round; otherwise it is the newest known */
  uint32_t has_value; /* the record is here */
  uint32_t zero;
  uint64_t epoch; /* of the record; 0: nothing was received from this member */
  int64_t age_ns;
  const void* record; /* lives as long as the view */
  uint64_t record_bytes;
} ofp_view_entry;
OFP_API int ofp_view_entry_get(const ofp_view* view, uint32_t index, ofp_view_entry* entry);

typedef struct ofp_ranked {
  double value;
  uint64_t member;
} ofp_ranked;
typedef struct ofp_view_figure {
  uint64_t count;        /* members that had a value */
  double value;          /* of sum, min, max, mean; NaN: no member had a value */
  uint64_t exact;        /* of sum, min and max of integers: all digits, as the field's type */
  const ofp_ranked* top; /* of top: the largest first */
  const uint64_t* bins;  /* of histogram */
  uint32_t top_count, bins_count;
} ofp_view_figure;
OFP_API int ofp_view_figure_get(const ofp_view* view, uint32_t index, ofp_view_figure* figure);

/* ---- grants: shares of a total that the leader gives the members for a limited time */

/* Requests amounts for these members, which are granted if this program's agent leads. A request holds until it is
 * changed or the exchange is closed. `may_grant` (may be NULL): whether this agent can grant now. */
OFP_API int ofp_exchange_grant(ofp_exchange* exchange, const uint32_t* members, const uint64_t* amounts, uint32_t count,
                               uint32_t* may_grant, ofp_error* error);
/* The amount granted to this program's agent, and how long it may still be used; 0 if there is none or it has ended.
 * The time is counted from this program's own records, so there are no grants without a published record. Makes no
 * call to the agent. */
OFP_API int ofp_exchange_granted(ofp_exchange* exchange, uint64_t* amount, int64_t* left_ns, ofp_error* error);

/* ---- a decision maker: a loop that computes, publishes, looks and decides */

/* Fills the next record and returns its bytes (at most `record_bytes_max`), or 0 to publish nothing. NULL: nothing
 * is published. */
typedef uint64_t (*ofp_compute_local)(void* user, void* record, uint64_t record_bytes_max);
/* Called with each view; 0 continues, any other value ends ofp_exchange_run with OFP_OK. */
typedef int (*ofp_on_view)(void* user, ofp_exchange* exchange, const ofp_view* view);
/* Runs until on_view ends it, or OFP_TIMEOUT. */
OFP_API int ofp_exchange_run(ofp_exchange* exchange, ofp_compute_local compute_local, ofp_on_view on_view, void* user,
                             int64_t wait_ns, ofp_error* error);

/* ---- tasks -----------------------------------------------------------------------------------
 *
 * A task is a function of a plug-in (offpath/plugin.h) over memory of this program: the agent pulls the inputs, a
 * worker runs the function, and the agent pushes the outputs and completes the task (docs/guides/tasks.md). Meanwhile
 * this program continues.
 *
 *     ofp_tasks *tasks;
 *     ofp_tasks_options options = {.struct_bytes = sizeof options, .lane = rank, .lanes = ranks};
 *     ofp_tasks_open(channel, &options, &tasks, &error);
 *     ofp_task_input in[] = {{.name = "x", .data = x, .bytes = n * 24}};
 *     ofp_task_output out[] = {{.name = "f", .data = ofp_segment_data(forces), .bytes = n * 24}};
 *     ofp_task_request request = {.struct_bytes = sizeof request, .function = "md/force",
 *                                 .inputs = in, .inputs_count = 1, .outputs = out, .outputs_count = 1};
 *     ofp_task *task;
 *     ofp_task_submit(tasks, &request, &task, &error);
 *     ofp_task_wait_pulled(task, OFP_FOREVER, &error);   // x is mine again
 *     // ... compute on something else ...
 *     ofp_task_wait(task, OFP_FOREVER, &error);          // f is there
 *     ofp_task_free(task);
 */

struct ofp_task_info;
typedef struct ofp_tasks ofp_tasks; /* a session of tasks; usable by several threads */
typedef struct ofp_task ofp_task;   /* one task; used by one thread at a time */

typedef struct ofp_task_plugin {
  const char* name;
  const char* path; /* of the shared object, on this machine */
} ofp_task_plugin;

typedef struct ofp_tasks_options {
  uint32_t struct_bytes;
  uint32_t lane,
      lanes; /* tasks of a lane run in the order of submission, lane i on worker i (modulo the number of workers) of a
                plug-in, whose static variables are state. lanes 0: any order, any worker */
  uint32_t tasks_max; /* under way at a time; 0: 64 */
  /* Plug-ins whose functions this program can run itself (ofp_task_run, or without a channel). If the agent permits
   * it (task.user_plugins), the agent also runs those at absolute paths, as this program's user */
  const ofp_task_plugin* plugins;
  uint32_t plugins_count;
  uint32_t zero;
  const char*
      team; /* functions of sessions of this user with the same team and `lanes` send each other messages
               (offpath/plugin.h: send, receive), on all agents of a group. A lane belongs to one session (otherwise
               OFP_EXISTS). Use a name for one run, such as the job's name and number. NULL: none. Takes a lane */
} ofp_tasks_options;

/* `channel` NULL: functions run in this program (`plugins`), in the thread that waits for a task or looks whether it
 * is over, in the order of submission. A function that does not return is not stopped. */
OFP_API int ofp_tasks_open(ofp_channel* channel, const ofp_tasks_options* options, ofp_tasks** tasks, ofp_error* error);
/* Cancels tasks under way and drops inputs that stayed on the agent. Call it before ofp_close. */
OFP_API void ofp_tasks_close(ofp_tasks* tasks);

typedef struct ofp_task_input {
  const char* name;
  const void* data; /* announced if it is not. NULL, with a version: the agent must have that version */
  uint64_t bytes;
  uint64_t version; /* not 0: the input stays on the agent, and is not pulled if the agent has this version */
  /* not 0: if the agent has that version, only the part given by the next two is pulled */
  uint64_t changed_from;
  uint64_t changed_at, changed_bytes;
} ofp_task_input;

typedef struct ofp_task_output {
  const char* name;
  void* data;       /* in memory of ofp_alloc. NULL: it is not pushed */
  uint64_t bytes;   /* at most; the function decides how many */
  uint64_t version; /* not 0: the output stays on the agent as an input of that name and version */
} ofp_task_output;

typedef struct ofp_task_request {
  uint32_t struct_bytes;
  uint32_t flags;        /* 0 */
  const char* function;  /* "plug-in/function", with the name of the plug-in in the agent's configuration */
  const void* arguments; /* copied; at most 32 KiB */
  uint64_t arguments_bytes;
  const ofp_task_input* inputs;
  const ofp_task_output* outputs;
  uint32_t inputs_count, outputs_count; /* at most 128 each */
  ofp_task* const*
      after; /* tasks of the same channel: this one begins (its inputs are pulled) when they have succeeded. If one of
                them fails, this one fails with OFP_CANCELLED, that task's name and reason */
  uint32_t after_count; /* at most 64 */
  uint32_t zero;
  int64_t wait_ns; /* for the whole task, which then ends with OFP_TIMEOUT. 0 or OFP_FOREVER: the plug-in's time */
} ofp_task_request;

/* Posts a request and returns. Inputs must not change until they are pulled, and outputs belong to the agent until
 * the task is over. OFP_WOULD_BLOCK: `tasks_max` are under way, or the ring is full. */
OFP_API int ofp_task_submit(ofp_tasks* tasks, const ofp_task_request* request, ofp_task** task, ofp_error* error);
/* OFP_OK: it has succeeded, and its outputs are there. OFP_WOULD_BLOCK: it continues (after `wait_ns`; 0 only looks
 * at this program's memory). Other codes are its failure; OFP_PEER_LOST: its agent is gone. May be called again. */
OFP_API int ofp_task_wait(ofp_task* task, int64_t wait_ns, ofp_error* error);
/* The next task of this session that is over, successful or not (ofp_task_wait says which). Each task that was not
 * freed is returned once, in the order in which this program learns of the ends; the caller frees the handle.
 * OFP_WOULD_BLOCK: none within `wait_ns`; ofp_event_fd becomes readable when there may be one. OFP_NOT_FOUND: none
 * is under way, and all were returned. When the agent is gone, every task is over. */
OFP_API int ofp_tasks_next(ofp_tasks* tasks, int64_t wait_ns, ofp_task** task, ofp_error* error);
/* As ofp_task_wait, for its inputs. OFP_OK: they are this program's again. */
OFP_API int ofp_task_wait_pulled(ofp_task* task, int64_t wait_ns, ofp_error* error);
/* Submits, and waits until it is over. If the agent is gone or dies meanwhile, this program runs the function itself
 * if `plugins` has its plug-in: inputs and outputs are where they were. `info` may be NULL. */
OFP_API int ofp_task_run(ofp_tasks* tasks, const ofp_task_request* request, struct ofp_task_info* info,
                         ofp_error* error);
/* The task ends soon with OFP_CANCELLED, or successfully if its outputs were being pushed. A function that does not
 * return is killed. */
OFP_API int ofp_task_cancel(ofp_task* task, ofp_error* error);
/* Cancels the task if it is not over. Its outputs may be written until ofp_tasks_close. */
OFP_API void ofp_task_free(ofp_task* task);

typedef struct ofp_task_info {
  uint32_t struct_bytes;
  uint32_t here;   /* this program ran it itself */
  uint64_t worker; /* the worker process: after a change, static variables have their initial values */
  int64_t pulled_ns, queued_ns, ran_ns,
      pushed_ns; /* how long inputs, waiting, function and outputs took, on the agent */
  uint64_t pulled_bytes, pushed_bytes;
} ofp_task_info;
/* For a task that has succeeded; OFP_WOULD_BLOCK before. */
OFP_API int ofp_task_info_get(ofp_task* task, ofp_task_info* info, ofp_error* error);
/* How many bytes the function has written to output `index`. */
OFP_API int ofp_task_output_bytes(ofp_task* task, uint32_t index, uint64_t* bytes, ofp_error* error);

#ifdef __cplusplus
}
#endif
#endif
