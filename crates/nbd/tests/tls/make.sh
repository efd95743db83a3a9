#!/bin/sh
# Makes the certificates of the tests, which are good for a hundred years.
set -eu
cd "$(dirname "$0")"
days=36500
for who in ca other-ca; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days $days \
        -subj "/CN=dendrofs tests $who" -keyout $who-key.pem -out $who-cert.pem
done
sign() { # NAME CA USAGE
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
        -subj "/CN=$1" -keyout "$1-key.pem" -out request.pem
    printf 'basicConstraints=CA:FALSE\nextendedKeyUsage=%s\nsubjectAltName=DNS:localhost\n' "$3" \
        > extensions
    openssl x509 -req -in request.pem -CA "$2-cert.pem" -CAkey "$2-key.pem" -CAcreateserial \
        -days $days -extfile extensions -out "$1-cert.pem"
    rm request.pem extensions "$2-cert.srl"
}
sign server ca serverAuth
sign client ca clientAuth
sign stranger other-ca clientAuth
rm ca-key.pem other-ca-key.pem other-ca-cert.pem
