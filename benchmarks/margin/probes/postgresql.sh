# SPDX-License-Identifier: Apache-2.0
# What users of PostgreSQL may need: each feature is a question to a running server, or a program beside it; a line
# each: NAME ok or NAME fail:WHY. The server itself ends a statement after 60 seconds.
export PGHOST=/run/postgresql PGUSER=postgres PGDATABASE=postgres PGOPTIONS='-c statement_timeout=60s -c client_min_messages=warning'
cd /var/lib/postgresql || exit 1

start > /tmp/server.log 2>&1 &
server=$!
tries=0
until pg_isready -q || [ "$tries" -ge 600 ]; do tries=$((tries + 1)); sleep 0.2; done

# said NAME STATUS OUTPUT WANTED
said() {
    if [ "$2" = 0 ] && case $3 in *"$4"*) true ;; *) false ;; esac; then
        echo "$1 ok"
    else
        set -- "$1" "$(printf '%s' "$3" | tail -n 1 | cut -c 1-120)"
        echo "$1 fail:${2:-no answer}"
    fi
}

# asks NAME WANTED SQL
asks() {
    out=$(psql -X -q -A -t -v ON_ERROR_STOP=1 -c "$3" 2>&1)
    said "$1" $? "$out" "$2"
}

# runs NAME WANTED PROGRAM...
runs() {
    name=$1 wanted=$2
    shift 2
    out=$("$@" 2>&1)
    said "$name" $? "$out" "$wanted"
}

asks start 1 'select 1'
runs pgbench_fills '' pgbench -q -i -s 1
runs pgbench_runs 'processed: 60/60' pgbench -n -c 3 -j 1 -t 20
runs pgbench_two_threads 'processed: 40/40' pgbench -n -c 2 -j 2 -t 20
runs pgbench_prepared 'processed: 20/20' pgbench -n -S -M prepared -t 20
runs pgbench_timed 'number of failed transactions: 0' pgbench -n -S -T 1
runs pgbench_at_a_rate 'processed: 10/10' pgbench -n -S -R 100 -t 10
runs over_tcp_ipv4 127.0.0.1 psql -h 127.0.0.1 -X -A -t -c 'select inet_server_addr()'
runs over_tcp_ipv6 ::1 psql -h ::1 -X -A -t -c 'select inet_server_addr()'
runs over_localhost 1 psql -h localhost -X -A -t -c 'select 1'
asks temporary_table 100 'create temp table t as select generate_series(1, 100) v; select count(*) from t'
asks sort_on_disk 100000 "set work_mem = '64kB'; select max(v) from (select generate_series(1, 100000) v order by 1 desc) s"
asks hash_on_disk 50000 "set work_mem = '64kB'; select count(*) from generate_series(1, 50000) a join generate_series(1, 50000) b on a = b"
asks parallel_query 100000 'set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0; select count(*) from pgbench_accounts'
asks parallel_plan 'Workers Launched: 2' 'set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0; explain (analyze, costs off, timing off) select count(*) from pgbench_accounts'
asks parallel_index '' 'set max_parallel_maintenance_workers = 2; set min_parallel_table_scan_size = 0; create index on pgbench_accounts (abalance)'
asks prefetch 100000 'set effective_io_concurrency = 10; set enable_seqscan = off; select count(*) from pgbench_accounts where abalance > -100000000'
asks listen_notify 'notification "probe"' "listen probe; notify probe, 'hello'; select 1"
asks advisory_lock t 'select pg_try_advisory_lock(5)'
asks row_lock 1 'begin; select aid from pgbench_accounts where aid = 1 for update; commit'
asks statement_timeout 'caught' "set statement_timeout = '100ms'; do \$\$ begin perform pg_sleep(30); exception when query_canceled then raise warning 'caught'; end \$\$"
asks sleep '' 'select pg_sleep(0.05)'
asks deadlock_timeout 50ms "set deadlock_timeout = '50ms'; show deadlock_timeout"
runs copy_out 99 psql -X -c "copy (select generate_series(1, 100)) to stdout"
runs copy_to_a_file '' psql -X -c "copy (select generate_series(1, 100)) to '/tmp/copied'"
runs copy_from_a_file 'COPY 100' psql -X -c 'create table c (v int)' -c "copy c from '/tmp/copied'"
runs copy_by_program 'COPY 1' psql -X -c 'create table p (v text)' -c "copy p from program 'echo hello'"
asks large_object 5 "select lo_from_bytea(4711, 'hello'); select length(lo_get(4711))"
asks file_listed t "select count(*) > 0 from pg_ls_dir('.')"
asks checkpoint '' checkpoint
asks vacuum '' 'vacuum (analyze) pgbench_accounts'
asks vacuum_full '' 'vacuum full pgbench_branches'
asks reindex_concurrently '' 'reindex table concurrently pgbench_branches'
runs tablespace_made 'CREATE TABLE' sh -c "mkdir -p /var/lib/postgresql/space && psql -X -c \"create tablespace probe location '/var/lib/postgresql/space'\" -c 'create table s (v int) tablespace probe'"
asks database_copied '' "create database copied strategy file_copy"
asks database_dropped '' 'drop database copied'
asks cancel t 'select pg_cancel_backend(0) is not null'
asks background_workers t "select count(*) > 3 from pg_stat_activity where backend_type in ('checkpointer', 'background writer', 'walwriter', 'autovacuum launcher', 'logical replication launcher')"
asks shared_memory_list t 'select count(*) > 10 from pg_shmem_allocations'
asks shared_memory_type mmap 'show shared_memory_type'
asks dynamic_shared_memory posix 'show dynamic_shared_memory_type'
asks time_zone 1 "set timezone = 'Europe/Berlin'; select extract(hour from '2024-01-01 00:00Z'::timestamptz)"
asks collation_icu t "select 'a' < 'B' collate \"en-x-icu\""
asks random_uuid t 'select gen_random_uuid() is not null'
asks functions_in_sql 42 "create or replace function f() returns int language plpgsql as 'begin return 6 * 7; end'; select f()"
asks settings_reloaded t 'select pg_reload_conf()'
asks log_rotated t 'select pg_rotate_logfile() is not null'
asks switch_log t 'select pg_switch_wal() is not null'
asks io_timing on 'set track_io_timing = on; select count(*) from pgbench_accounts; show track_io_timing'
runs dump 'CREATE TABLE' pg_dump -t pgbench_branches
runs dump_in_parallel '' pg_dump -F d -j 2 -f /tmp/dumped
runs tablespace_dropped 'DROP TABLESPACE' psql -X -c 'drop table s' -c 'drop tablespace probe'
runs base_backup '' pg_basebackup -D /tmp/backup -X stream --no-sync
runs fsync_test 'fdatasync' pg_test_fsync -s 1 -f /var/lib/postgresql/fsync
runs timing_test 'Histogram' pg_test_timing -d 1

# Other settings, each a start of its own.
kill -INT $server
wait $server

# starts NAME SETTING...
starts() {
    name=$1
    shift
    out=$(pg_ctl -s -w -t 60 -l /tmp/other.log -o "-c jit=off -c shared_buffers=16MB $*" start 2>&1)
    status=$?
    [ "$status" = 0 ] && out=$(psql -X -q -A -t -c 'create table if not exists w (v int); insert into w values (1); checkpoint; select 1' 2>&1) && status=$?
    said "$name" "$status" "$out$(tail -n 1 /tmp/other.log)" ''
    pg_ctl -s -m fast -w -t 60 stop > /dev/null 2>&1
}

starts huge_pages_tried -c huge_pages=try
starts shared_memory_of_system_v -c shared_memory_type=sysv
starts dynamic_memory_of_system_v -c dynamic_shared_memory_type=sysv
starts dynamic_memory_mapped -c dynamic_shared_memory_type=mmap
for method in fsync fdatasync open_sync open_datasync; do starts "sync_by_$method" -c wal_sync_method=$method; done
starts collector_of_logs -c logging_collector=on
starts log_to_syslog -c log_destination=syslog
starts archived -c archive_mode=on -c "archive_command=/bin/true"
starts flush_after -c checkpoint_flush_after=256kB -c backend_flush_after=256kB -c bgwriter_flush_after=256kB
starts priority_of_no_swap -c recovery_init_sync_method=syncfs
runs single_user 'backend>' sh -c "echo 'select 1' | postgres --single -D $PGDATA postgres"
runs control_data 'Data page checksum version:' pg_controldata
echo 'probe ended'
