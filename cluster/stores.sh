#!/bin/bash
# `make up` and `make down`: PostgreSQL and an MLflow server with user accounts, for a small group, on this machine.
#
#     cluster/stores.sh up       # prints the variables that a sweep needs; keeps existing data
#     cluster/stores.sh down
#
# Other machines reach them through an SSH tunnel, ssh -L 5000:127.0.0.1:5000 -L 5432:127.0.0.1:5432 HOST. Passwords are
# created once, each in a file that only its owner can read. cluster/compose.yaml does the same in containers.
#
# The roles sweep (the ledger) and mlflow (MLflow's databases) own the schema of their databases, and may do nothing
# else. The superuser has no password: it connects through the socket in stores/postgres, which other accounts cannot enter.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 077
stores=${STORES:-$PWD/stores} database_port=${POSTGRES_PORT:-5432} mlflow_port=${MLFLOW_PORT:-5000}
artifacts=${ARTIFACTS:-$stores/artifacts}       # or s3://bucket/artifacts
newest=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort --version-sort | tail -n 1 || true)
export PATH="$PWD/.venv/bin:$PATH:$newest"
export PGPASSFILE="$stores/pgpass"

as_owner() { # PostgreSQL refuses to run as root
  if [ "$(id -u)" = 0 ]; then (cd / && setpriv --reuid=postgres --regid=postgres --clear-groups "$@"); else "$@"; fi
}

make_secrets() {
  mkdir -p "$stores/postgres"
  for name in postgres runs mlflow session; do
    [ -s "$stores/$name-password" ] || python -c 'import secrets; print(secrets.token_urlsafe(24))' >"$stores/$name-password"
  done
  echo "127.0.0.1:$database_port:*:sweep:$(cat "$stores/postgres-password")" >"$PGPASSFILE"
  echo "127.0.0.1:$database_port:*:mlflow:$(cat "$stores/runs-password")" >"$stores/runs-pgpass"
  printf '[mlflow]\nmlflow_tracking_username = admin\nmlflow_tracking_password = %s\n' \
    "$(cat "$stores/mlflow-password")" >"$stores/credentials"
  cat >"$stores/auth.ini" <<END
[mlflow]
default_permission = NO_PERMISSIONS
database_uri = postgresql://mlflow@127.0.0.1:$database_port/users
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
END
}

start_postgres() {
  if [ "$(id -u)" = 0 ]; then
    chmod 711 "$stores"
    chown postgres "$stores/postgres"
  fi
  [ -e "$stores/postgres/PG_VERSION" ] ||
    as_owner initdb --pgdata="$stores/postgres" --username=postgres --auth-local=trust --auth-host=scram-sha-256 >/dev/null
  as_owner pg_ctl --pgdata="$stores/postgres" status >/dev/null ||
    as_owner pg_ctl --pgdata="$stores/postgres" --log="$stores/postgres/log" --wait --silent start \
      -o "-c listen_addresses=127.0.0.1 -c port=$database_port -c unix_socket_directories=$stores/postgres"
  administer postgres <<<'REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC;'
  make_role sweep "$stores/postgres-password" sweeps
  make_role mlflow "$stores/runs-password" mlflow users
}

administer() { as_owner psql -qX -v ON_ERROR_STOP=1 -o /dev/null -h "$stores/postgres" -p "$database_port" -U postgres "$1"; }

make_role() { # ROLE PASSWORD-FILE DATABASE...: on standard input, because every account can read a command line
  local role=$1 password name
  password=$(cat "$2")
  shift 2
  administer postgres <<END
SELECT 'CREATE ROLE $role' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '$role') \gexec
ALTER ROLE $role LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD '$password';
END
  for name in "$@"; do
    administer postgres <<END
SELECT 'CREATE DATABASE $name' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '$name') \gexec
REVOKE ALL ON DATABASE $name FROM PUBLIC;
GRANT CONNECT, TEMPORARY ON DATABASE $name TO $role;
END
    administer "$name" <<<"ALTER SCHEMA public OWNER TO $role; REVOKE ALL ON SCHEMA public FROM PUBLIC;"
  done
}

start_mlflow() {
  PGPASSFILE="$stores/runs-pgpass" MLFLOW_AUTH_CONFIG_PATH="$stores/auth.ini" MLFLOW_AUTH_ADMIN_PASSWORD="$(cat "$stores/mlflow-password")" \
    MLFLOW_FLASK_SERVER_SECRET_KEY="$(cat "$stores/session-password")" MLFLOW_DISABLE_TELEMETRY=true \
    MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false \
    setsid python -m mlflow server --app-name basic-auth --host 127.0.0.1 --port "$mlflow_port" --workers 2 \
    --backend-store-uri "postgresql://mlflow@127.0.0.1:$database_port/mlflow" --artifacts-destination "$artifacts" \
    --allowed-hosts "127.0.0.1:$mlflow_port,localhost:$mlflow_port" \
    --cors-allowed-origins "http://127.0.0.1:$mlflow_port,http://localhost:$mlflow_port" \
    >"$stores/mlflow.log" 2>&1 </dev/null &
  echo $! >"$stores/mlflow.pid"
  for _ in $(seq 600); do
    curl -sf -m 2 "http://127.0.0.1:$mlflow_port/health" >/dev/null && return
    kill -0 "$(cat "$stores/mlflow.pid")" 2>/dev/null || break
    sleep 0.5
  done
  tail -n 5 "$stores/mlflow.log" >&2
  exit 1
}

running() { [ -s "$stores/mlflow.pid" ] && kill -0 "$(cat "$stores/mlflow.pid")" 2>/dev/null; }

case ${1:-} in
up)
  make_secrets
  start_postgres
  running || start_mlflow
  cat <<END
export SWEEP_LEDGER=postgresql://sweep@127.0.0.1:$database_port/sweeps PGPASSFILE=$PGPASSFILE
export MLFLOW_TRACKING_URI=http://127.0.0.1:$mlflow_port
# MLflow's user and password: cp $stores/credentials ~/.mlflow/credentials
END
  ;;
down)
  running && kill -TERM -- "-$(cat "$stores/mlflow.pid")"
  rm -f "$stores/mlflow.pid"
  as_owner pg_ctl --pgdata="$stores/postgres" --mode=fast --silent stop
  ;;
*)
  echo "usage: cluster/stores.sh up | down" >&2
  exit 2
  ;;
esac
