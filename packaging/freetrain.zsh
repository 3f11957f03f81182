#compdef freetrain

_freetrain_completion() {
  eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _FREETRAIN_COMPLETE=complete_zsh freetrain)
}

compdef _freetrain_completion freetrain
