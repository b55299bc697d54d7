#define OFP_LOOPS baseline
#include "pool/query/query_loops.inc"
